"""Queues: waiting tasks and their ages; pause and resume."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Blueprint, abort, request, url_for

from firmq.dashboard.auth.security import needs, person
from firmq.dashboard.auth.users import Role
from firmq.dashboard.context import changed, context, show
from firmq.dashboard.filters import pause_of

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

blueprint = Blueprint("queues", __name__)


@blueprint.get("/queues")
def queues() -> str:
    return show("queues.html")


@blueprint.post("/queues/<name>/pause")
@needs(Role.OPERATOR)
def pause(name: str) -> Response:
    _demand_known(name)
    reason, until, end = pause_of(request.form)
    try:
        context.stores.queues.pause(name, reason, person().name, until=until)
    except ValueError as error:
        abort(400, str(error))
    message = f"Queue {name} is paused{end}: workers take no more tasks from it; running tasks continue."
    return changed("paused queue", name, f"{reason}{end}", to=url_for(".queues"), message=message)


@blueprint.post("/queues/<name>/resume")
@needs(Role.OPERATOR)
def resume(name: str) -> Response:
    _demand_known(name)
    context.stores.queues.resume(name)
    return changed("resumed queue", name, to=url_for(".queues"), message=f"Queue {name} is resumed.")


def _demand_known(name: str) -> None:
    if name not in context.stores.queues.register:
        abort(400, f"there is no queue {name}")
