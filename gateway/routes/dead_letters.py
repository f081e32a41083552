"""Endpoints for dead letters: list, retry, delete."""

from __future__ import annotations

from firmq.gateway import schemas
from firmq.gateway.http import errors
from firmq.gateway.http.across import Across
from firmq.gateway.http.endpoints import Answer, AuditAction, Reply, endpoint
from firmq.gateway.routes.tasks import task_list
from firmq.shared.domain.task import TaskState
from firmq.shared.failpoints import failpoint
from firmq.shared.stores.api_keys import Scope
from firmq.shared.stores.dead_letters import DeadLetters
from firmq.shared.submission import answers, refusals

PROBLEMS = (refusals.NOT_FOUND, refusals.CONFLICT)


class DeadLetterRoutes:
    """Tasks in state failed. `GET /tasks/{task_id}` shows one with all details."""

    def __init__(self, dead_letters: DeadLetters) -> None:
        self.dead_letters = dead_letters

    @endpoint(
        "GET",
        "/dlq/failed-tasks",
        Across.PAGES,
        tag="dead letters",
        query=schemas.DeadLettersQuery,
        answers={200: Answer(description="A page of dead letters, latest failure first.", model=schemas.TaskList)},
    )
    def page(self, query: schemas.DeadLettersQuery) -> Reply:
        """Lists dead letters with their errors."""
        wanted = query.wanted
        if wanted.state not in (None, TaskState.FAILED) or wanted.deleted:
            detail = "does not apply to dead letters: list tasks of other states, and deleted ones, with GET /tasks"
            name = "deleted" if wanted.deleted else "status"
            raise refusals.invalid([errors.parameter_error(name, detail)])
        return task_list(lambda: self.dead_letters.page(wanted, limit=query.limit, cursor=query.cursor))

    @endpoint(
        "POST",
        "/dlq/failed-tasks/{task_id}/retry",
        Across.ID,
        tag="dead letters",
        scope=Scope.OPERATE,
        act=AuditAction("retried", "{task_id}"),
        body=schemas.RetryBody,
        body_required=False,
        answers={202: Answer(description="The task is pending again.", model=answers.Status)},
        problems=(*PROBLEMS, refusals.BATCH_STOPPED),
    )
    def retry(self, task_id: str, body: schemas.RetryBody) -> Reply:
        """Retries a dead letter with all its retries. Its earlier attempts stay on record.

        For a dead letter of a stopped batch, retry the batch: POST /batches/{batch_id}/retry.
        """
        self.dead_letters.requeue(task_id, body.score)
        failpoint("gateway.requeued")
        answer = {"task_id": task_id, "status": TaskState.PENDING}
        return Reply(content=answer, status=202, headers={"Location": f"/tasks/{task_id}"})

    @endpoint(
        "DELETE",
        "/dlq/failed-tasks/{task_id}",
        Across.ID,
        tag="dead letters",
        scope=Scope.ADMIN,
        act=AuditAction("deleted", "{task_id}"),
        answers={200: Answer(description="The dead letter is deleted.", model=schemas.Removed)},
        problems=PROBLEMS,
    )
    def purge(self, task_id: str) -> Reply:
        """Deletes a dead letter and its whole record. It can be restored for RETENTION_DELETED."""
        self.dead_letters.purge(task_id)
        return Reply(content={"task_id": task_id, "removed": True})
