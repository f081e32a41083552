"""Endpoints for tasks: submit, list, show, wait for the result, cancel."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from flask import g, request

from firmq.gateway import present, schemas
from firmq.gateway.auth.authenticator import submitter
from firmq.gateway.auth.visible import demand_no_placeholder
from firmq.gateway.http import errors
from firmq.gateway.http.across import POSITIONS, Across
from firmq.gateway.http.endpoints import REPLAYED, Answer, AuditAction, Reply, endpoint
from firmq.gateway.metrics import Metrics
from firmq.gateway.routes.queue_names import demand_queue
from firmq.shared.domain import strict_json, task_data
from firmq.shared.domain.retry import RetryPolicy
from firmq.shared.domain.task import NewTask, TaskState
from firmq.shared.failpoints import failpoint
from firmq.shared.stores.api_keys import Scope
from firmq.shared.stores.idempotency import Idempotency, Request
from firmq.shared.stores.queues import Queues, Submitted
from firmq.shared.stores.tasks import Page, Records
from firmq.shared.submission import answers, reading, refusals
from firmq.shared.submission.refusals import Refusal
from firmq.shared.submission.task_factory import TaskFactory, refusal_of
from firmq.shared.submission.type_cache import TypeCache

WAIT_STEP = 1.0


class Tasks:
    """Endpoints of single tasks."""

    def __init__(
        self,
        *,
        queues: Queues,
        records: Records,
        type_cache: TypeCache,
        task_factory: TaskFactory,
        metrics: Metrics,
        idempotency: Idempotency,
        policy: RetryPolicy,
        waiters: int,
        stopping: threading.Event,
    ) -> None:
        self.queues = queues
        self.records = records
        self.type_cache = type_cache
        self.task_factory = task_factory
        self.metrics = metrics
        self.idempotency = idempotency
        self.policy = policy
        # Each long poll occupies a thread, and most threads must stay free for requests that do not wait.
        self.waiters = threading.BoundedSemaphore(waiters)
        self.stopping = stopping

    @endpoint(
        "POST",
        "/tasks",
        Across.TASK,
        tag="tasks",
        scope=Scope.SUBMIT,
        body=schemas.NewTaskBody,
        answers={
            200: Answer(
                description="Another task holds the unique_key, and on_conflict is `existing`: that task.",
                model=schemas.TaskAccepted,
            ),
            202: Answer(description="The task is accepted and stored.", model=schemas.TaskAccepted),
        },
        problems=(
            refusals.UNKNOWN_TYPE,
            refusals.NO_PARENT,
            refusals.NOT_UNIQUE,
            refusals.QUEUE_FULL,
            refusals.TOO_MANY_QUEUES,
            refusals.NO_TYPES,
            refusals.PAYLOAD_STORE,
        ),
        idempotent=True,
    )
    def submit(self, body: schemas.NewTaskBody) -> Reply:
        """Submits a task. After a 202 the task is stored and will end in one of the final states."""
        with self.task_factory.checked(body, g.trace_parent, submitter()) as task:
            stored, again = self._store(task)
        failpoint("gateway.stored")
        if refusal := refusal_of(task, stored):
            raise refusal
        if stored.stored and not again:
            self.metrics.count(task)
        return _accepted(stored, task.type, task.queue, again, self.type_cache.warnings(task.type))

    def replay(self, request: Request, body: Any) -> Reply | None:
        """Returns the first response to this request, for a repetition that validation would refuse now."""
        stored = self.idempotency.first_task(request)
        if stored is None:
            return None
        return _accepted(
            stored,
            body["type"],
            self.task_factory.queue_of(body["type"], body.get("queue"), body.get("priority")),
            again=True,
            warnings=(),
        )

    def _store(self, task: NewTask) -> tuple[Submitted, bool]:
        """Stores a task. Returns the outcome, and whether it is the one of an earlier request with the same key."""
        if g.request_key is not None:
            return self.idempotency.submit(g.request_key, task)
        [stored] = self.queues.submit([task])
        return stored, False

    @endpoint(
        "GET",
        "/tasks",
        Across.PAGES,
        tag="tasks",
        query=schemas.TasksQuery,
        answers={200: Answer(description="A page of tasks, newest first.", model=schemas.TaskList)},
    )
    def page(self, query: schemas.TasksQuery) -> Reply:
        """Lists tasks. The cost of a page does not depend on their number. A page may be short and not the last."""
        wanted = query.wanted
        if query.priority and not wanted.queue:
            wanted = replace(wanted, queue=query.priority)
        return task_list(lambda: self.records.page(wanted, limit=query.limit, cursor=query.cursor))

    @endpoint(
        "GET",
        "/tasks/{task_id}",
        Across.ID,
        tag="tasks",
        answers={200: Answer(description="The task.", model=answers.TaskDetail)},
        problems=(refusals.NOT_FOUND, refusals.CORRUPT, refusals.PAYLOAD_STORE),
    )
    def show(self, task_id: str) -> Reply:
        """Shows a task with its data, result, progress and all attempts on record."""
        found = self.records.get(task_id)
        kind = self.type_cache.get(found.summary.type)
        policy = self.policy.override(kind.retry) if kind else self.policy
        waits = not found.summary.state.ended and found.summary.state is not TaskState.RUNNING
        warnings = self.type_cache.warnings(found.summary.type) if waits else []
        return Reply(content=present.detail(found, policy, self.records.deliveries(found), warnings))

    @endpoint(
        "PATCH",
        "/tasks/{task_id}",
        Across.ID,
        tag="tasks",
        scope=Scope.OPERATE,
        act=AuditAction("changed", "{task_id}"),
        body=schemas.ChangeBody,
        answers={200: Answer(description="The task is changed.", model=answers.Task)},
        problems=(
            refusals.NOT_FOUND,
            refusals.CONFLICT,
            refusals.QUEUE_FULL,
            refusals.CORRUPT,
            refusals.UNKNOWN_TYPE,
            refusals.NO_TYPES,
            refusals.PAYLOAD_STORE,
        ),
    )
    def change(self, task_id: str, body: schemas.ChangeBody) -> Reply:
        """Changes the queue, time, data or score of a task that waits; all or nothing.

        A task that is running or has ended is a conflict, and the detail has advice.
        """
        data = None
        if "data" in body.model_fields_set:
            demand_no_placeholder(body.data)
            kind = self.records.record(task_id).summary.type
            self.type_cache.check(kind, body.data)
            data = task_data.encode(kind, self.records.payloads.data_of(task_id, strict_json.dump(body.data)))
        if body.queue is not None:
            self.type_cache.check_queue(self.records.record(task_id).summary.type, body.queue)
            demand_queue(body.queue, "queue", self.records.queues)
        delay = None if body.delay is None else timedelta(seconds=body.delay)
        self.queues.change(task_id, queue=body.queue, delay=delay, run_at=body.run_at, data=data, score=body.score)
        shown = reading.task(self.records.record(task_id).summary)
        return Reply(content=shown, noted=", ".join(sorted(body.changed)))

    @endpoint(
        "POST",
        "/tasks/{task_id}/restore",
        Across.ID,
        tag="tasks",
        scope=Scope.OPERATE,
        act=AuditAction("restored", "{task_id}"),
        answers={200: Answer(description="The task is restored.", model=answers.Status)},
        problems=(refusals.NOT_FOUND, refusals.CONFLICT, refusals.BATCH_STOPPED),
    )
    def restore(self, task_id: str) -> Reply:
        """Restores a task that was cancelled, to wait again, or that was deleted, in the state in which it ended.

        A cancelled task can be restored for RETENTION_CANCELLED, a deleted one for RETENTION_DELETED. For a running
        task the request to cancel it is withdrawn; if its worker has stopped it already, it runs again.
        """
        self.queues.restore(task_id)
        return Reply(content={"task_id": task_id, "status": self.records.state(task_id)})

    @endpoint(
        "DELETE",
        "/tasks/{task_id}",
        Across.ID,
        tag="tasks",
        scope=Scope.OPERATE,
        act=AuditAction("cancelled", "{task_id}"),
        query=schemas.CancelQuery,
        answers={
            200: Answer(description="The task is cancelled.", model=answers.Status),
            202: Answer(description="The task is running; its worker was asked to stop it.", model=answers.Status),
        },
        problems=(refusals.NOT_FOUND, refusals.CONFLICT),
    )
    def cancel(self, task_id: str, query: schemas.CancelQuery) -> Reply:
        """Cancels a task: a waiting one immediately, a running one by stopping it. An ended task is a conflict."""
        state = self.queues.cancel(task_id, query.reason)
        failpoint("gateway.cancelled")
        status = 202 if state is TaskState.RUNNING else 200
        return Reply(content={"task_id": task_id, "status": state}, status=status)

    @endpoint(
        "GET",
        "/tasks/{task_id}/result",
        Across.ID,
        tag="tasks",
        query=schemas.ResultQuery,
        answers={
            200: Answer(description="The task has ended.", model=answers.Ended),
            202: Answer(description="The task has not ended yet: try again.", model=answers.Status),
        },
        problems=(refusals.NOT_FOUND, refusals.CORRUPT, refusals.PAYLOAD_STORE),
    )
    def result(self, task_id: str, query: schemas.ResultQuery) -> Reply:
        """Returns the result, waiting for it up to `wait` seconds. Responds at once when too many requests wait."""
        state = self._state_within(task_id, query.wait)
        if not state.ended:
            return Reply(content={"task_id": task_id, "status": state}, status=202, headers={"Retry-After": "1"})
        return Reply(content=present.result(self.records.end(task_id)))

    def _state_within(self, task_id: str, seconds: float) -> TaskState:
        if not seconds or not self.waiters.acquire(blocking=False):
            return self.records.state(task_id)
        try:
            return self._wait(task_id, seconds)
        finally:
            self.waiters.release()

    def _wait(self, task_id: str, seconds: float) -> TaskState:
        """Waits in short steps, so that a process that is stopping does not wait half a minute."""
        end = time.monotonic() + seconds
        while True:
            left = end - time.monotonic()
            state = self.records.wait(task_id, max(0.0, min(left, WAIT_STEP)))
            if state.ended or left <= WAIT_STEP or self.stopping.is_set():
                return state


def _accepted(stored: Submitted, task_type: str, queue: str, again: bool, warnings: Sequence[str]) -> Reply:
    g.task_id = stored.id
    answer: dict[str, Any] = {
        "task_id": stored.id,
        "status": stored.state,
        "type": task_type,
        "queue": stored.queue or queue,
    }
    if warnings:
        answer["warnings"] = list(warnings)
    headers = {"Location": f"/tasks/{stored.id}", **(REPLAYED if again else {})}
    return Reply(content=answer, status=200 if stored.existing else 202, headers=headers)


def task_list(read: Callable[[], Page]) -> Reply:
    """Returns one page of tasks in list form. Raises Refusal for an invalid cursor."""
    try:
        page = read()
    except ValueError:
        raise bad_cursor() from None
    items = [reading.task(each) for each in page.items]
    note_positions(page.positions)
    return Reply(content=schemas.TaskList(items=items, next_cursor=page.next_cursor))


def note_positions(positions: Iterable[str]) -> None:
    """Passes the cursor after each item of a page to the app before this one, if any."""
    if (noted := request.environ.get(POSITIONS)) is not None:
        noted += positions


def bad_cursor() -> Refusal:
    """Returns the refusal of an invalid cursor."""
    detail = "is not valid for this list: use next_cursor of the previous page"
    return refusals.invalid([errors.parameter_error("cursor", detail)])
