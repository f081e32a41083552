"""Bulk actions on dead letters: a review first, then the progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Blueprint, abort, request, url_for

from taskqueue.dashboard.auth.security import demand_role, needs, person
from taskqueue.dashboard.auth.users import Role
from taskqueue.dashboard.context import changed, context, show
from taskqueue.shared.stores.bulk_actions import BulkAction, Selection, Verb

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

USUAL_RATE = 50
MOST_RATE = 1000
MOST_PICKED = 1000
_CHANGES = {"pause": "paused", "resume": "running", "abort": "aborted"}

blueprint = Blueprint("bulk", __name__)


@blueprint.get("/bulk")
def actions() -> str:
    found, unreadable = context.queries.bulk_actions()
    return show("bulk_actions.html", actions=found, unreadable=unreadable)


@blueprint.post("/bulk/review")
@needs(Role.OPERATOR)
def review() -> str:
    verb, selection = _verb(), _selection()
    count, first = context.queries.selected(selection)
    return show(
        "bulk_review.html",
        verb=verb,
        selection=selection,
        count=count,
        first=first,
        group=context.queries.failure_group(selection.cause) if selection.cause else None,
        usual_rate=USUAL_RATE,
    )


@blueprint.post("/bulk")
@needs(Role.OPERATOR)
def begin() -> Response:
    verb, selection, rate = _verb(), _selection(), request.form.get("rate", 0, int)
    if not 1 <= rate <= MOST_RATE:
        abort(400, f"the rate must be from 1 to {MOST_RATE} tasks per second")
    if len(selection.ids) > MOST_PICKED:
        abort(400, f"at most {MOST_PICKED} tasks can be selected: choose the whole group instead")
    count = context.stores.bulk_actions.count(selection)
    if not count:
        abort(400, "none of these tasks is a dead letter any more")
    what = _what(selection)
    action_id = context.stores.bulk_actions.begin(verb, selection, what=what, by=person().name, rate=rate)
    detail = f"{count} tasks, {rate} per second: {what}"
    return changed(f"started bulk {verb}", action_id, detail, to=url_for(".action", action_id=action_id))


@blueprint.get("/bulk/<action_id>")
def action(action_id: str) -> str:
    return show("bulk_action.html", action=_found(action_id))


@blueprint.post("/bulk/<action_id>/<any(pause, resume, abort):change>")
@needs(Role.OPERATOR)
def change(action_id: str, change: str) -> Response:
    if change == "resume":
        _demand_role(_found(action_id).verb)
    if not context.stores.bulk_actions.change(action_id, _CHANGES[change]):
        abort(400, "this bulk action has ended")
    what = f"{change}{'d' if change.endswith('e') else 'ed'} bulk action"
    return changed(what, action_id, to=url_for(".action", action_id=action_id))


def _verb() -> Verb:
    try:
        verb = Verb(request.form.get("verb", ""))
    except ValueError:
        abort(400, "the form names no action: go back to the dead letters and choose one")
    _demand_role(verb)
    return verb


def _demand_role(verb: Verb) -> None:
    if verb is Verb.DELETE:
        demand_role(Role.ADMIN)


def _found(action_id: str) -> BulkAction:
    found = context.queries.bulk_action(action_id)
    if found is None:
        abort(404, "no such bulk action, or its record is corrupt; the last hundred are kept")
    return found


def _selection() -> Selection:
    """Returns the selection of the form: a whole group, all dead letters, or the selected tasks."""
    scope = request.form.get("scope", "")
    if scope == "all":
        return Selection()
    if scope == "group":
        cause = request.form.get("cause", "")[:64]
        if not cause:
            abort(400, "the form names no group: go back to the dead letters and choose one")
        return Selection(cause=cause)
    ids = tuple(dict.fromkeys(each[:128] for each in request.form.getlist("id")))
    if not ids:
        abort(400, "no task is selected: select some, or choose the whole group")
    return Selection(ids=ids)


def _what(selection: Selection) -> str:
    """Returns a description of the selection for the list of actions."""
    if selection.ids:
        return "selected tasks"
    if not selection.cause:
        return "all dead letters"
    group = context.queries.failure_group(selection.cause)
    return f"{group.type}: {group.error} {group.pattern or group.message}"[:200] if group else "an empty group"
