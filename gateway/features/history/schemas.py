"""Models of the statistics of ended tasks."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from firmq.gateway.schemas.values import Query, View
from firmq.shared.domain.values import AnyQueueName, Instant


class AnalyticsQuery(Query):
    """The range and the filters."""

    range: Literal["1h", "6h", "24h", "7d", "30d", "1y"] = "24h"
    until: Instant | None = Field(None, description="End of the range; by default now.")
    type: str | None = Field(None, max_length=100)
    queue: AnyQueueName | None = None
    app_version: str | None = Field(None, max_length=64, description="APP_VERSION of the worker of the last attempt.")


class DurationsView(View):
    """Percentiles of a duration in seconds, exact to 5 %; null where there is none."""

    p50: float | None
    p95: float | None
    p99: float | None


class TotalsView(View):
    """Tasks that ended, by final state, and the retries and crashes that they had before."""

    completed: int
    failed: int
    cancelled: int
    expired: int
    retried: int
    crashed: int
    failure_rate: float = Field(description="Share of failed tasks among completed and failed ones, 0 to 1.")
    wait: DurationsView = Field(description="Time from enqueueing to the start of the last attempt.")
    run: DurationsView = Field(description="Run time of the last attempt.")


class PointView(TotalsView):
    """The tasks that ended within one step of the range."""

    at: datetime


class GroupView(TotalsView):
    """The tasks of one type, queue or version."""

    name: str


class CauseView(View):
    """A cause of failure, as a failure fingerprint."""

    cause: str
    type: str
    error: str = Field(description="Class and message of the error of one of them.")
    failed: int
    failed_before: int = Field(description="In the range before.")


class AnalyticsView(View):
    """Statistics of a range. The range before is as long and ends where this one begins."""

    since: datetime
    until: datetime
    step_seconds: int
    total: TotalsView
    before: TotalsView
    points: list[PointView]
    points_before: list[PointView]
    types: list[GroupView] = Field(description="Most failures first, at most 50, as the two lists below.")
    queues: list[GroupView]
    app_versions: list[GroupView]
    causes: list[CauseView] = Field(description="Not limited to the queue or version.")
