"""The dead-letter queue: tasks that failed for good, to be sent back or removed."""

from __future__ import annotations

from gateway import schemas
from gateway.http import errors
from gateway.http.endpoints import Answer, AuditAction, Reply, endpoint
from gateway.routes.tasks import task_list
from shared.domain.task import TaskState
from shared.failpoints import stop_point
from shared.stores.api_keys import Scope
from shared.stores.dead_letters import DeadLetters

PROBLEMS = (errors.NOT_FOUND, errors.CONFLICT)


class DeadLetterRoutes:
    """Tasks in state failed. `GET /tasks/{task_id}` shows one with everything."""

    def __init__(self, dead_letters: DeadLetters) -> None:
        self.dead_letters = dead_letters

    @endpoint(
        "GET",
        "/dlq/failed-tasks",
        tag="dead letters",
        query=schemas.DeadLettersQuery,
        answers={200: Answer(description="A page of dead letters, the latest failure first.", model=schemas.TaskList)},
    )
    def page(self, query: schemas.DeadLettersQuery) -> Reply:
        """Lists the tasks that failed for good, each with its error."""
        return task_list(
            lambda: self.dead_letters.page(
                limit=query.limit, cursor=query.cursor, task_type=query.type, since=query.since, until=query.until
            )
        )

    @endpoint(
        "POST",
        "/dlq/failed-tasks/{task_id}/retry",
        tag="dead letters",
        scope=Scope.OPERATE,
        act=AuditAction("retried", "{task_id}"),
        answers={202: Answer(description="The task is pending again.", model=schemas.TaskStatus)},
        problems=(*PROBLEMS, errors.BATCH_STOPPED),
    )
    def retry(self, task_id: str) -> Reply:
        """Sends a dead letter back to its queue with all its retries; its attempts stay on record.

        One of a batch that was stopped goes back with all others of that batch: POST /batches/{batch_id}/retry.
        """
        self.dead_letters.requeue(task_id)
        stop_point("gateway.requeued")
        answer = {"task_id": task_id, "status": TaskState.PENDING}
        return Reply(content=answer, status=202, headers={"Location": f"/tasks/{task_id}"})

    @endpoint(
        "DELETE",
        "/dlq/failed-tasks/{task_id}",
        tag="dead letters",
        scope=Scope.ADMIN,
        act=AuditAction("deleted", "{task_id}"),
        answers={200: Answer(description="The task is gone.", model=schemas.Removed)},
        problems=PROBLEMS,
    )
    def purge(self, task_id: str) -> Reply:
        """Removes a dead letter for good, with everything on record about it."""
        self.dead_letters.purge(task_id)
        return Reply(content={"task_id": task_id, "removed": True})
