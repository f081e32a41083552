"""Who is working."""

from __future__ import annotations

from gateway import present, schemas
from gateway.http.endpoints import Answer, Reply, endpoint
from shared.stores.workers import Workers


class WorkerRoutes:
    """The workers on record."""

    def __init__(self, workers: Workers) -> None:
        self.workers = workers

    @endpoint(
        "GET",
        "/workers",
        tag="workers",
        answers={
            200: Answer(
                description="The live workers by name, then lost ones, the latest first.", model=schemas.WorkerList
            )
        },
    )
    def all(self) -> Reply:
        """Lists the live workers and what each is doing, and those lost in the last week, with the reason."""
        found = self.workers.look()
        items = [present.worker(each) for each in (*found.live, *found.lost)]
        return Reply(content=schemas.WorkerList(items=items, unreadable=found.unreadable))
