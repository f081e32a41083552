"""Endpoint that lists workers."""

from __future__ import annotations

from firmq.gateway import present, schemas
from firmq.gateway.http.across import Across
from firmq.gateway.http.endpoints import Answer, Reply, endpoint
from firmq.shared.stores.workers import Workers


class WorkerRoutes:
    """The workers on record."""

    def __init__(self, workers: Workers) -> None:
        self.workers = workers

    @endpoint(
        "GET",
        "/workers",
        Across.WORKERS,
        tag="workers",
        answers={
            200: Answer(description="Live workers by name, then lost workers, latest first.", model=schemas.WorkerList)
        },
    )
    def all(self) -> Reply:
        """Lists live workers with their running tasks, and workers lost in the last week with the reason."""
        found = self.workers.look()
        items = [present.worker(each) for each in (*found.live, *found.lost)]
        return Reply(content=schemas.WorkerList(items=items, unreadable=found.unreadable))
