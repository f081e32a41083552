"""Who is working."""

from __future__ import annotations

from gateway import present, schemas
from gateway.endpoints import Answer, Reply, endpoint
from shared.workers import Workers


class WorkerRoutes:
    """The live workers."""

    def __init__(self, workers: Workers) -> None:
        self.workers = workers

    @endpoint(
        "GET",
        "/workers",
        tag="workers",
        answers={200: Answer(description="All live workers.", model=schemas.WorkerList)},
    )
    def all(self) -> Reply:
        """Lists the workers that gave a sign of life within the last minute, and what each is doing."""
        workers, unreadable = self.workers.look()
        return Reply(
            content=schemas.WorkerList(items=[present.worker(each) for each in workers], unreadable=unreadable)
        )
