"""The timeline of an incident: events and changes by users on one axis."""

from __future__ import annotations

from flask import Blueprint, Response, abort, request

from firmq.dashboard.context import context, opened, show
from firmq.dashboard.filters import moment
from firmq.shared.features.timeline.incident import Incident, Incidents, as_markdown, check_range

SHOWN = 90
"""Events of a page, the latest ones."""

blueprint = Blueprint("timeline", __name__, template_folder="templates")


@blueprint.get("/timeline")
def timeline() -> str:
    found = _incident()
    return show("timeline/incident.html", incident=found, events=found.events[-SHOWN:], asked=_asked())


@blueprint.get("/timeline.md")
def markdown() -> Response:
    return Response(as_markdown(_incident()), content_type="text/markdown; charset=utf-8")


def _asked() -> dict[str, str]:
    asked = {name: request.args.get(name, "").strip()[:200] for name in ("since", "until")}
    return {name: value for name, value in asked.items() if value}


def _incident() -> Incident:
    """Returns the timeline of the range in the query. Ends the request with 422 for an invalid one."""
    asked = _asked()
    try:
        since, until = moment(asked.get("since")), moment(asked.get("until"))
        range_ = check_range(since, until, context.queries.snapshot().now())
    except ValueError as error:
        abort(422, f"invalid range: {error}")
    incidents: Incidents = opened("timeline")
    if until is None:
        return incidents.read(*range_)
    return context.queries.cache.get(("incident", *range_), lambda: incidents.read(*range_))
