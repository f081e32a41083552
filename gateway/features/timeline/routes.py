"""Endpoints for the timeline of an incident."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from firmq.gateway.http import errors
from firmq.gateway.http.across import Across
from firmq.gateway.http.endpoints import Answer, Reply, endpoint
from firmq.gateway.schemas.values import Query, View
from firmq.shared.domain.values import Instant
from firmq.shared.features.timeline.incident import LONGEST, MOST, Incident, Incidents, as_markdown, check_range
from firmq.shared.submission import refusals

MARKDOWN = "text/markdown; charset=utf-8"


class TimelineQuery(Query):
    """The range of a timeline."""

    since: Instant | None = Field(None, description="Null: six hours before `until`.")
    until: Instant | None = Field(None, description=f"Null: now. At most {LONGEST.days} days after `since`.")


class TimelineEventView(View):
    """An event of the system, or a change by a user."""

    at: datetime
    kind: str = Field(description="deploy, alert, cause, worker, pause, limit, bulk or action.")
    title: str = Field(description="The event, as a sentence.")
    detail: str
    link: str = Field(description="Path of its page in the dashboard.")


class TimelineView(View):
    """The events of a range, the earliest first."""

    since: datetime
    until: datetime
    complete: bool = Field(description="False if events are missing; `incomplete` names them.")
    incomplete: list[str] = Field(description="Missing parts, as sentences.")
    events: list[TimelineEventView] = Field(description=f"The latest {MOST} events.")


class TimelineRoutes:
    """Deploys, alerts, causes, lost workers, pauses, limits, bulk actions and people's actions on one axis."""

    def __init__(self, incidents: Incidents) -> None:
        self.incidents = incidents

    @endpoint(
        "GET",
        "/timeline",
        Across.TIMELINE,
        tag="system",
        query=TimelineQuery,
        answers={200: Answer(description="The events.", model=TimelineView)},
    )
    def show(self, query: TimelineQuery) -> Reply:
        """Returns the events of the system, and the changes by users, in a range of time."""
        found = self._read(query)
        content = TimelineView(
            since=found.since,
            until=found.until,
            complete=not found.incomplete,
            incomplete=list(found.incomplete),
            events=[
                TimelineEventView(at=each.at, kind=each.kind, title=each.title, detail=each.detail, link=each.link)
                for each in found.events
            ],
        )
        return Reply(content=content)

    @endpoint(
        "GET",
        "/timeline.md",
        Across.TEXTS,
        tag="system",
        query=TimelineQuery,
        answers={200: Answer(description="The events as a list.", media_type=MARKDOWN)},
    )
    def markdown(self, query: TimelineQuery) -> Reply:
        """Exports a timeline as Markdown, for a report about an incident."""
        return Reply(content=as_markdown(self._read(query)).encode(), media_type=MARKDOWN)

    def _read(self, query: TimelineQuery) -> Incident:
        try:
            since, until = check_range(query.since, query.until, self.incidents.now())
        except ValueError as error:
            name, _, text = str(error).partition(" ")
            if name not in TimelineQuery.model_fields:
                name, text = "since", str(error)
            raise refusals.invalid([errors.parameter_error(name, text)]) from None
        return self.incidents.read(since, until)
