"""Endpoint for the statistics of ended tasks."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from firmq.gateway.features.history import schemas
from firmq.gateway.http.across import Across
from firmq.gateway.http.endpoints import Answer, Reply, endpoint
from firmq.shared.domain.histogram import percentiles
from firmq.shared.features.history.rows import COUNTS, Totals
from firmq.shared.submission import refusals
from firmq.shared.submission.refusals import Refusal

if TYPE_CHECKING:
    from firmq.shared.features.history.analytics import Report
    from firmq.shared.features.history.reading import History


class AnalyticsRoutes:
    """Statistics from the history."""

    def __init__(self, history: History | None) -> None:
        self.history = history

    @endpoint(
        "GET",
        "/analytics",
        Across.FIRST,
        tag="analytics",
        query=schemas.AnalyticsQuery,
        answers={200: Answer(description="The statistics.", model=schemas.AnalyticsView)},
        problems=(refusals.NOT_FOUND,),
    )
    def analytics(self, query: schemas.AnalyticsQuery) -> Reply:
        """Counts ended tasks over a range, with wait and run times and causes of failure, beside the range before."""
        if self.history is None:
            raise Refusal(refusals.NOT_FOUND, "this system has no history, and so no statistics: set HISTORY_URL")
        from firmq.shared.features.history.analytics import Wanted, read_report  # SQLAlchemy is slow to import

        until = int(query.until.timestamp() if query.until else time.time())
        wanted = Wanted(range=query.range, until=until, type=query.type, queue=query.queue, version=query.app_version)
        return Reply(content=_shown(read_report(self.history, wanted)))


def _shown(found: Report) -> schemas.AnalyticsView:
    wanted, length = found.wanted, len(found.points)
    return schemas.AnalyticsView.model_validate(
        {
            "since": _moment(wanted.begins),
            "until": _moment(wanted.ends),
            "step_seconds": wanted.step,
            "total": _totals(found.total),
            "before": _totals(found.before),
            "points": [{"at": _moment(found.start_of(at)), **_totals(each)} for at, each in enumerate(found.points)],
            "points_before": [
                {"at": _moment(found.start_of(at - length)), **_totals(each)}
                for at, each in enumerate(found.points_before)
            ],
            "types": _groups(found.types),
            "queues": _groups(found.queues),
            "app_versions": _groups(found.versions),
            "causes": list(map(asdict, found.causes)),
        }
    )


def _groups(groups: Mapping[str, Totals]) -> list[dict[str, Any]]:
    return [{"name": name, **_totals(each)} for name, each in groups.items()]


def _totals(totals: Totals) -> dict[str, Any]:
    return {
        **{name: totals.counts[name] for name in COUNTS},
        "failure_rate": round(totals.failure_rate, 6),
        "wait": dict(zip(("p50", "p95", "p99"), percentiles(totals.wait), strict=True)),
        "run": dict(zip(("p50", "p95", "p99"), percentiles(totals.run), strict=True)),
    }


def _moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
