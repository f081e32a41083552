"""Bulk actions on dead letters: a review first, then the progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Blueprint, abort, redirect, render_template, request, url_for

from dashboard.auth.security import needs, person
from dashboard.auth.users import Role
from shared.stores.bulk_actions import BulkAction, Selection, Verb

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

    from dashboard.app import PageContext

USUAL_RATE = 50
_CHANGES = {"pause": "paused", "resume": "running", "abort": "aborted"}


def page(context: PageContext) -> Blueprint:
    """`/bulk`"""
    blueprint = Blueprint("bulk", __name__)

    @blueprint.get("/bulk")
    def actions() -> str:
        found, unreadable = context.queries.bulk_actions()
        return render_template("bulk_actions.html", now=context.queries.look(), actions=found, unreadable=unreadable)

    @blueprint.post("/bulk/review")
    @needs(Role.OPERATOR)
    def review() -> str:
        verb, selection = _verb(), _selection()
        count, first = context.queries.selected(selection)
        return render_template(
            "bulk_review.html",
            now=context.queries.look(),
            verb=verb,
            selection=selection,
            count=count,
            first=first,
            group=context.queries.group(selection.cause) if selection.cause else None,
            usual_rate=USUAL_RATE,
        )

    @blueprint.post("/bulk")
    @needs(Role.OPERATOR)
    def begin() -> Response:
        verb, selection = _verb(), _selection()
        rate = request.form.get("rate", 0, int)
        action_id = context.actions.begin_bulk(person(), verb, selection, rate, _what(context, selection))
        return redirect(url_for("bulk.action", action_id=action_id))

    @blueprint.get("/bulk/<action_id>")
    def action(action_id: str) -> str:
        return render_template("bulk_action.html", now=context.queries.look(), action=_found(context, action_id))

    @blueprint.post("/bulk/<action_id>/<any(pause, resume, abort):change>")
    @needs(Role.OPERATOR)
    def change(action_id: str, change: str) -> Response:
        if change == "resume":
            _demand_role(_found(context, action_id).verb)
        context.actions.change_bulk(person(), action_id, _CHANGES[change])
        return redirect(url_for("bulk.action", action_id=action_id))

    return blueprint


def _verb() -> Verb:
    try:
        verb = Verb(request.form.get("verb", ""))
    except ValueError:
        abort(400, "the form names no action: go back to the dead letters and choose one")
    _demand_role(verb)
    return verb


def _demand_role(verb: Verb) -> None:
    if verb is Verb.DELETE and not person().may(Role.ADMIN):
        abort(403, f"this action requires the role admin, which {person().name} does not have")


def _found(context: PageContext, action_id: str) -> BulkAction:
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


def _what(context: PageContext, selection: Selection) -> str:
    """Returns a description of the selection for the list of actions."""
    if selection.ids:
        return "selected tasks"
    if not selection.cause:
        return "all dead letters"
    group = context.queries.group(selection.cause)
    return f"{group.type}: {group.error} {group.pattern or group.message}"[:200] if group else "an empty group"
