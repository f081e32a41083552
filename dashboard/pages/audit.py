"""The audit record: changes, their authors and times."""

from __future__ import annotations

import re

from flask import Blueprint, Response, abort, request

from firmq.dashboard.context import context, show
from firmq.dashboard.filters import moment
from firmq.shared.stores.audit import AuditFilter, as_csv, as_json_lines

_FIELDS = ("who", "what", "about", "since", "until")
_FORMATS = {"csv": (as_csv, "text/csv"), "jsonl": (as_json_lines, "application/x-ndjson")}

blueprint = Blueprint("audit", __name__)


@blueprint.get("/audit")
def audit() -> str:
    before = request.args.get("before")
    if before and not re.fullmatch("[0-9]{1,19}-[0-9]{1,19}", before):
        abort(400, "invalid cursor: open the list from its first page")
    asked = _asked()
    entries, older = context.queries.audit(before, _filter(asked))
    return show("audit.html", entries=entries, older=older, before=before, asked=asked)


@blueprint.get("/audit.<any(csv, jsonl):kind>")
def export(kind: str) -> Response:
    write, media_type = _FORMATS[kind]
    content = b"".join(write(context.stores.audit.entries(_filter(_asked()))))
    return Response(
        content, mimetype=media_type, headers={"Content-Disposition": f'attachment; filename="audit.{kind}"'}
    )


def _asked() -> dict[str, str]:
    asked = {name: request.args.get(name, "").strip()[:200] for name in _FIELDS}
    return {name: value for name, value in asked.items() if value}


def _filter(asked: dict[str, str]) -> AuditFilter:
    """Returns the filter of a query. Ends the request with 400 for an invalid time."""
    try:
        since, until = moment(asked.get("since")), moment(asked.get("until"))
    except ValueError as error:
        abort(400, f"invalid filter: {error}")
    return AuditFilter(who=asked.get("who"), what=asked.get("what"), about=asked.get("about"), since=since, until=until)
