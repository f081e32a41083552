"""Reads filters of tasks from the query of a page or from a form."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from flask import abort

from firmq.dashboard.context import context
from firmq.shared.domain.search import LONGEST as LONGEST_SEARCH
from firmq.shared.domain.task import TaskState
from firmq.shared.stores.tasks import Filter, filter_of

FIELDS = ("status", "type", "queue", "tag", "submitted_by", "since", "until", "deleted", "search")
LONGEST = 200


def given(query: Mapping[str, str]) -> dict[str, str]:
    """Returns the fields of a filter that have a value."""
    asked = {
        name: query.get(name, "").strip()[: LONGEST_SEARCH + 1 if name == "search" else LONGEST] for name in FIELDS
    }
    return {name: value for name, value in asked.items() if value}


def read_filter(query: Mapping[str, str]) -> Filter:
    """Returns the filter of a query. Ends the request with 400 if a part of it is invalid, or names a hidden field."""
    asked = given(query)
    try:
        known: dict[str, Any] = {
            name: asked[name] for name in ("type", "queue", "tag", "submitted_by") if name in asked
        }
        if status := asked.get("status"):
            known |= {"signal": "*"} if status == "waiting" else {"state": TaskState(status)}
        known |= {name: moment(asked[name]) for name in ("since", "until") if name in asked}
        known |= {"deleted": True} if "deleted" in asked else {}
        found = filter_of(known, asked.get("search", ""))
    except ValueError as error:
        abort(400, f"invalid filter: {error}")
    for each in found.data:
        demand_visible(each.path)
    return found


def demand_visible(path: str) -> None:
    """Ends the request with 400 if the values of a field of the data are hidden."""
    if context.redaction.hides_path(path):
        abort(400, "the values of this field are hidden: see DASHBOARD_REDACT")


def moment(text: str | None) -> datetime | None:
    """Returns a moment from the form (in UTC) or from any ISO 8601 text; None for an empty one."""
    if not text:
        return None
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def pause_of(form: Mapping[str, str]) -> tuple[str, datetime | None, str]:
    """Returns reason and end of a pause, and the end as text. Ends the request with 400 if it is invalid."""
    try:
        until = moment(form.get("until", "").strip()[:LONGEST])
    except ValueError as error:
        abort(400, f"invalid end of the pause: {error}")
    end = f" until {until:%Y-%m-%d %H:%M} UTC" if until else ""
    return form.get("reason", "").strip()[:500], until, end
