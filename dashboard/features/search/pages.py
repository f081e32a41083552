"""Who is hit: the tasks of a cause, a batch or a filter by the fields of their data and by tag; suggestions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from flask import Blueprint, Response, abort, jsonify, request

from firmq.dashboard.context import context, opened, show
from firmq.dashboard.features.search.suggestions import as_documents, fields_of, suggest
from firmq.dashboard.filters import demand_visible, given, read_filter
from firmq.shared.domain.csv_lines import MEDIA_TYPE
from firmq.shared.domain.search import LONGEST
from firmq.shared.domain.task import TaskState
from firmq.shared.features.search.breakdown import Breakdown, Values, as_csv
from firmq.shared.stores.selection import Source
from firmq.shared.stores.tasks import Filter

blueprint = Blueprint("search", __name__, template_folder="templates")

FEW, MANY = 5, 200
"""Numbers of values that a field shows among other fields, and by itself."""
_MORE = ("cause", "batch_id")


class Card(NamedTuple):
    """The values of a field, or the tags, and the query that shows them alone."""

    name: str
    values: Values
    query: Mapping[str, str]
    is_tags: bool = False


@blueprint.get("/breakdown")
def breakdown() -> str:
    asked, named, by_tag = _asked(), _field(), "tags" in request.args
    found = _read(named)
    fields = [Card(name, each, {**asked, "field": name}) for name, each in found.fields.items()]
    tags = [Card("tags", found.tags, {**asked, "tags": "1"}, is_tags=True)]
    cards = tags if by_tag else fields if named else [each for each in fields + tags if each.values.counts]
    cause = asked.get("cause")
    return show(
        "search/breakdown.html",
        found=found,
        asked=asked,
        alone=bool(named or by_tag),
        cards=cards,
        most=MANY if named or by_tag else FEW,
        group=context.queries.failure_group(cause) if cause else None,
    )


@blueprint.get("/breakdown.csv")
def export() -> Response:
    named = _field()
    headers = {"Content-Disposition": 'attachment; filename="breakdown.csv"'}
    return Response(as_csv(_read(named), named), content_type=MEDIA_TYPE, headers=headers)


def _asked() -> dict[str, str]:
    """Returns the filter of the query, for links."""
    more = {name: request.args[name] for name in _MORE if request.args.get(name)}
    if not all(re.fullmatch("[A-Za-z0-9_-]{1,128}", value) for value in more.values()):
        abort(400, "invalid cause or batch: open this page from a dead-letter group or a batch")
    return {**given(request.args), **more}


def _field() -> str | None:
    """Returns the field that the query names. Ends the request with 400 if its values are hidden."""
    named = request.args.get("field", "").strip()[:200]
    if named:
        demand_visible(named)
    return named or None


def _read(named: str | None) -> Breakdown:
    """Returns the breakdown without hidden fields."""
    asked, wanted = _asked(), read_filter(request.args)
    if "cause" in asked:
        wanted = Filter(state=TaskState.FAILED, cause=asked["cause"])
    found: Breakdown = opened("search")(Source(wanted, asked.get("batch_id")), named)
    return replace(
        found, fields={name: each for name, each in found.fields.items() if not context.redaction.hides_path(name)}
    )


@blueprint.get("/suggestions")
def suggestions() -> Response:
    typed = request.args.get("search", "")[:LONGEST]
    last = typed.rpartition(" ")[2]
    is_field = last.startswith("data.") and ":" not in last
    found = fields_of(context.queries, typed) if is_field else suggest(context.queries, typed)
    return jsonify({"items": as_documents(found)})
