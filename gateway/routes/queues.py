"""Endpoints for queues: list, pause, resume, move foreign jobs."""

from __future__ import annotations

from firmq.gateway import present, schemas
from firmq.gateway.auth.authenticator import actor
from firmq.gateway.http.across import Across
from firmq.gateway.http.endpoints import Answer, AuditAction, Reply, endpoint
from firmq.gateway.routes.queue_names import known_queue
from firmq.shared.stores.api_keys import Scope
from firmq.shared.stores.pauses import Pauses
from firmq.shared.stores.queues import Queues
from firmq.shared.submission import refusals


class QueueRoutes:
    """The configured queues, and those that tasks were submitted to."""

    def __init__(self, queues: Queues, default_priority: str) -> None:
        self.queues = queues
        self.default_priority = default_priority

    @endpoint(
        "GET",
        "/queues",
        Across.BY_NAME,
        tag="queues",
        answers={200: Answer(description="All queues.", model=schemas.QueueList)},
    )
    def all(self) -> Reply:
        """Lists the queues by weight with waiting tasks, age of the oldest, and pauses."""
        return Reply(content=schemas.QueueList(items=self._items()))

    @endpoint(
        "POST",
        "/queues/{name}/pause",
        Across.ALL,
        tag="queues",
        scope=Scope.OPERATE,
        act=AuditAction("paused queue", "{name}"),
        body=schemas.PauseBody,
        answers={200: Answer(description="The queue is paused.", model=schemas.QueueView)},
        problems=(refusals.NOT_FOUND,),
    )
    def pause(self, name: str, body: schemas.PauseBody) -> Reply:
        """Pauses a queue: workers claim nothing more from it. Running tasks continue, submissions are accepted."""
        queue = self._queue(name)
        noted = pause(self.queues.pauses, queue, body)
        return Reply(content=self._show(queue).content, noted=noted)

    @endpoint(
        "POST",
        "/queues/{name}/resume",
        Across.ALL,
        tag="queues",
        scope=Scope.OPERATE,
        act=AuditAction("resumed queue", "{name}"),
        answers={200: Answer(description="The queue is not paused.", model=schemas.QueueView)},
        problems=(refusals.NOT_FOUND,),
    )
    def resume(self, name: str) -> Reply:
        """Resumes a queue: workers claim tasks from it again."""
        queue = self._queue(name)
        self.queues.resume(queue)
        return self._show(queue)

    @endpoint(
        "POST",
        "/queues/{name}/foreign/move",
        Across.FIRST,
        tag="queues",
        scope=Scope.OPERATE,
        act=AuditAction("moved RQ's jobs out of queue", "{name}"),
        body=schemas.MoveForeignBody,
        answers={200: Answer(description="The jobs are in the other queue.", model=schemas.ForeignMoved)},
        problems=(refusals.NOT_FOUND,),
    )
    def move_foreign(self, name: str, body: schemas.MoveForeignBody) -> Reply:
        """Moves foreign jobs of RQ programs from a queue of this system to a queue that RQ workers serve."""
        queue = self._queue(name)
        if body.to in self.queues.register or body.to == "default":
            rule = f"must be a queue that an RQ worker serves: {body.to} belongs to this system, which runs no RQ jobs"
            raise refusals.invalid([refusals.field_error(("to",), rule)])
        return Reply(content=schemas.ForeignMoved(moved=self.queues.move_foreign(queue, body.to)))

    def _queue(self, name: str) -> str:
        return known_queue(name, self.queues.register, self.default_priority)

    def _show(self, name: str) -> Reply:
        return Reply(content=next(item for item in self._items() if item.name == name))

    def _items(self) -> list[schemas.QueueView]:
        return [present.queue(each, self.default_priority) for each in self.queues.overview()]


def pause(pauses: Pauses, name: str, body: schemas.PauseBody) -> str:
    """Pauses a queue or a task type; returns a note for the audit. Raises Refusal: 422 for an end in the past."""
    try:
        pauses.pause(name, body.reason, actor(), until=body.until)
    except ValueError as error:
        raise refusals.invalid([refusals.field_error(("until",), str(error))]) from None
    return f"until {body.until.isoformat()}" if body.until else ""
