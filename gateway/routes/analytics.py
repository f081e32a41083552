"""Endpoint for the statistics of ended tasks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from firmq.gateway import present, schemas
from firmq.gateway.http.endpoints import Answer, Reply, endpoint
from firmq.gateway.http.parts import Across
from firmq.shared.submission import refusals
from firmq.shared.submission.refusals import Refusal

if TYPE_CHECKING:
    from firmq.shared.history.reading import History


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
        from firmq.shared.history.analytics import Wanted, read_report  # SQLAlchemy is slow to import

        until = int(query.until.timestamp() if query.until else time.time())
        wanted = Wanted(range=query.range, until=until, type=query.type, queue=query.queue, version=query.app_version)
        return Reply(content=present.analytics(read_report(self.history, wanted)))
