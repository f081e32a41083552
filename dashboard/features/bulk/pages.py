"""Bulk actions on the tasks of a list: a review first, then the progress."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from flask import Blueprint, abort, request, url_for

from firmq.dashboard import editing
from firmq.dashboard.auth.security import demand_role, needs, person
from firmq.dashboard.auth.users import Role
from firmq.dashboard.context import SHOWN, changed, context, opened, show
from firmq.dashboard.features.bulk.queries import BulkQueries
from firmq.dashboard.filters import given, read_filter
from firmq.shared.domain.task import TaskState
from firmq.shared.features.bulk.amending import misfit
from firmq.shared.features.bulk.store import MOST_CANARIES, MOST_RATE, SUCCESS, BulkAction, Plan, Selection, Verb
from firmq.shared.stores.tasks import Filter

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

USUAL_RATE = 50
CHANGES = 3
"""Tasks whose data a review shows before and after a change."""
SAMPLE = 20
"""Tasks that a review shows."""
_CHANGES = {"pause": "paused", "resume": "running", "abort": "aborted"}

blueprint = Blueprint("bulk", __name__, template_folder="templates")


@blueprint.get("/bulk")
def actions() -> str:
    found, unreadable = _bulk().all()
    return show("bulk/actions.html", actions=found, unreadable=unreadable)


@blueprint.post("/bulk/review")
@needs(Role.OPERATOR)
def review() -> str:
    plan = _plan()
    count, first = _bulk().selected(plan, SAMPLE)
    changes, hide = _bulk().changes(plan), context.redaction.hide
    cause = plan.selection.wanted.cause
    return show(
        "bulk/review.html",
        plan=plan,
        count=count,
        first=first,
        changes=changes,
        texts=[(each, json.dumps(hide(each.before)), json.dumps(hide(each.after))) for each in changes[:CHANGES]],
        misfit=misfit(changes),
        group=context.queries.failure_group(cause) if cause else None,
        form=request.form,
        form_filter=given(request.form),
        usual_rate=USUAL_RATE,
        kept=timedelta(seconds=context.settings.retention_deleted),
        most_rate=MOST_RATE,
        most_canaries=MOST_CANARIES,
        success=SUCCESS,
    )


@blueprint.post("/bulk")
@needs(Role.OPERATOR)
def begin() -> Response:
    _demand_as_reviewed()
    plan, rate = _plan(), request.form.get("rate", 0, int)
    if not 1 <= rate <= MOST_RATE:
        abort(400, f"the rate must be from 1 to {MOST_RATE} tasks per second")
    count = _bulk().store.count(plan)
    if wrong := misfit(_bulk().changes(plan)):
        abort(400, wrong)
    if not count.number:
        abort(400, "none of these tasks can be processed any more: they have changed since the review")
    what, name = _what(plan.selection) + _bulk().amendments.in_words(plan), person().name
    first = f", {plan.canary} first" if plan.canary else ""
    detail = f"{count.number} tasks{first}, {rate} per second: {what}"
    reason = f"by {name} in the dashboard"
    begun = _bulk().store.begin(plan, what=what, by=name, rate=rate, reason=reason)
    return changed(f"started bulk {plan.verb}", begun, detail, to=url_for(".action", action_id=begun))


@blueprint.get("/bulk/<action_id>")
def action(action_id: str) -> str:
    return show("bulk/action.html", action=_found(action_id))


@blueprint.post("/bulk/<action_id>/<any(pause, resume, abort):change>")
@needs(Role.OPERATOR)
def change(action_id: str, change: str) -> Response:
    if change == "resume":
        _demand_role(_found(action_id).verb)
    if not _bulk().store.change(action_id, _CHANGES[change]):
        abort(400, "this bulk action has ended")
    what = f"{change}{'d' if change.endswith('e') else 'ed'} bulk action"
    return changed(what, action_id, to=url_for(".action", action_id=action_id))


@blueprint.post("/bulk/<action_id>/undo")
@needs(Role.OPERATOR)
def undo(action_id: str) -> Response:
    found = _found(action_id)
    if found.open:
        abort(400, "this bulk action has not ended: abort it first")
    try:
        begun = _bulk().store.undo(found, by=person().name)
    except ValueError as error:
        abort(400, str(error))
    return changed("started undo of bulk action", found.id, to=url_for(".action", action_id=begun))


def _demand_as_reviewed() -> None:
    """Ends the request with 400 where another store has been chosen since the review, as in another tab."""
    shown = request.environ.get(SHOWN, "")
    if request.form.get("store", "") != shown:
        abort(400, f"{shown} has been chosen since this review: go back to the list and review it again")


def _plan() -> Plan:
    """Returns the plan in a form. Ends the request with 400 if it is incomplete or contradictory."""
    try:
        verb = Verb(request.form.get("verb", ""))
    except ValueError:
        abort(400, "the form names no action: go back to the list and choose one")
    _demand_role(verb)
    to = request.form.get("to", "")[:100] if verb is Verb.MOVE else ""
    if to and not context.queries.has_queue(to):
        abort(400, f"there is no queue {to[:40]}: choose one of the list")
    try:
        canary = request.form.get("canary", 0, int)
        patch = _patch() if verb is Verb.RETRY else None
        return Plan(verb=verb, selection=_selection(), to=to, canary=canary, patch=patch)
    except ValueError as error:
        abort(400, str(error))


def _patch() -> dict[str, Any] | None:
    """Returns the change of the data; None for none. Ends the request with 400 if it is no JSON object."""
    text = request.form.get("patch", "").strip()
    patch = editing.parse(text) if text else None
    if not (patch is None or isinstance(patch, dict)):
        abort(400, 'the change of the data is no JSON object: name fields and their new values, as in {"amount": 5}')
    return patch


def _demand_role(verb: Verb) -> None:
    if verb is Verb.DELETE:
        demand_role(Role.ADMIN)


def _found(action_id: str) -> BulkAction:
    found = _bulk().get(action_id)
    if found is None:
        abort(404, "there is no such bulk action, or its record is corrupt: only the last hundred are kept")
    return found


def _selection() -> Selection:
    """Returns the selection of the form: by a filter, a whole group, all dead letters, or the selected tasks."""
    scope = request.form.get("scope", "")
    if scope == "all":
        return Selection(wanted=Filter(state=TaskState.FAILED))
    if scope == "group":
        cause = request.form.get("cause", "")[:64]
        if not cause:
            abort(400, "the form names no group: go back to the dead letters and choose one")
        return Selection(wanted=Filter(state=TaskState.FAILED, cause=cause))
    if scope == "filter":
        wanted = read_filter(request.form)
        if wanted == Filter():
            abort(400, "the filter is empty: choose at least a status, a type, a queue or a tag, or search")
        return Selection(wanted=wanted)
    ids = tuple(dict.fromkeys(each[:128] for each in request.form.getlist("id")))
    if not ids:
        abort(400, "no task is selected: select some, or choose the whole group")
    return Selection(ids=ids)


def _what(selection: Selection) -> str:
    """Returns a description of the selection for the list of actions."""
    if selection.wanted == Filter(state=TaskState.FAILED):
        return "all dead letters"
    if not selection.wanted.cause or selection.wanted != Filter(state=TaskState.FAILED, cause=selection.wanted.cause):
        return selection.what[:200]
    group = context.queries.failure_group(selection.wanted.cause)
    return f"{group.type}: {group.error} {group.pattern or group.message}"[:200] if group else "an empty group"


def _bulk() -> BulkQueries:
    found: BulkQueries = opened("bulk")
    return found
