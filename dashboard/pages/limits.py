"""Limits: usage and waiting tasks of each; set and remove."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Blueprint, abort, request, url_for

from firmq.dashboard.auth.security import needs, person
from firmq.dashboard.auth.users import Role
from firmq.dashboard.context import changed, context, show
from firmq.shared.domain.limit import read_limit

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

blueprint = Blueprint("limits", __name__)


@blueprint.get("/limits")
def limits() -> str:
    return show("limits.html", limits=context.queries.limits())


@blueprint.post("/limits/set")
@needs(Role.OPERATOR)
def put() -> Response:
    kind, name, concurrency, rate = (
        request.form.get(each, "").strip() for each in ("kind", "name", "concurrency", "rate")
    )
    name = f"{kind}:{name}"
    try:
        limit = read_limit({"concurrency": int(concurrency) if concurrency else None, "rate": rate or None})
        context.stores.limits.put(name, limit, person().name)
    except ValueError as error:
        abort(400, str(error))
    return changed(
        "set limit",
        name,
        f"concurrency: {concurrency or 'unlimited'}, rate: {rate or 'unlimited'}",
        to=url_for(".limits"),
        message=f"The limit {name} takes effect immediately on every worker; running tasks continue.",
    )


@blueprint.post("/limits/<string:name>/remove")
@needs(Role.OPERATOR)
def remove(name: str) -> Response:
    if not context.stores.limits.delete(name):
        abort(400, f"no limit {name} is set at run time")
    message = f"The limit {name} is removed; a limit declared by a handler or the settings applies again."
    return changed("removed limit", name, to=url_for(".limits"), message=message)
