"""Suggestions for the palette, while a search is typed."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify, request

from firmq.dashboard.context import context
from firmq.dashboard.suggestions import as_documents, fields_of, suggest
from firmq.shared.domain.search import LONGEST

blueprint = Blueprint("suggestions", __name__)


@blueprint.get("/suggestions")
def suggestions() -> Response:
    typed = request.args.get("search", "")[:LONGEST]
    last = typed.rpartition(" ")[2]
    is_field = last.startswith("data.") and ":" not in last
    found = fields_of(context.queries, typed) if is_field else suggest(context.queries, typed)
    return jsonify({"items": as_documents(found)})
