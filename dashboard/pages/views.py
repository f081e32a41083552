"""Saved views of the list of tasks: open, save, delete."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from flask import Blueprint, abort, redirect, request, url_for

from taskqueue.dashboard.auth.security import demand_role, person
from taskqueue.dashboard.auth.users import Role
from taskqueue.dashboard.context import changed, context
from taskqueue.dashboard.filters import FIELDS, given, read_filter
from taskqueue.shared.errors import StoreUnavailable
from taskqueue.shared.stores.saved_views import SavedView

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

blueprint = Blueprint("views", __name__)


@blueprint.get("/views/<view_id>")
def open_view(view_id: str) -> Response:
    found = _found(view_id)
    with suppress(StoreUnavailable):
        context.stores.saved_views.use(found)
    query: dict[str, Any] = {name: value for name, value in found.query.items() if name in FIELDS}
    return redirect(url_for("tasks.tasks", **query))


@blueprint.post("/views/save")
def save() -> Response:
    shared = "shared" in request.form
    if shared:
        demand_role(Role.OPERATOR)
    read_filter(request.form)
    query: dict[str, Any] = dict(given(request.form))
    name = request.form.get("name", "").strip()
    try:
        view = context.stores.saved_views.save(name, query, person().name, shared=shared)
    except ValueError as error:
        abort(400, str(error))
    message = f"The view {view.name} is saved" + (" for all users." if shared else ".")
    return changed("saved view", view.name, to=url_for("tasks.tasks", **query), message=message)


@blueprint.post("/views/<view_id>/delete")
def delete(view_id: str) -> Response:
    found = _found(view_id)
    if found.owner != person().name:
        demand_role(Role.ADMIN)
    context.stores.saved_views.delete(view_id)
    return changed("deleted view", found.name, to=url_for("tasks.tasks"), message=f"The view {found.name} is deleted.")


def _found(view_id: str) -> SavedView:
    found = context.stores.saved_views.get(view_id)
    if found is None or not (found.shared or found.owner == person().name or person().may(Role.ADMIN)):
        abort(404, "there is no such view: it was deleted, or not used for 400 days")
    return found
