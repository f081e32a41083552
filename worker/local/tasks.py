"""A task of local mode: what its record would be in Redis."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from shared.client.answers import Attempt, Dependency, Ended, Error, Progress, TaskDetail
from shared.domain.retry import Changes
from shared.domain.task import TaskState
from worker.executors.ipc import Outcome
from worker.handlers.parent_results import NONE, EndedBatch, ParentResults, ParentTask

_ENDS = {"completed": TaskState.COMPLETED, "failed": TaskState.FAILED, "cancelled": TaskState.CANCELLED}


@dataclass(slots=True, kw_only=True)
class LocalTask:
    """A task and how it fares. Moments in seconds since 1970."""

    id: str
    type: str
    data: str
    priority: str
    created_at: float
    enqueued_at: float
    order: int
    state: TaskState = TaskState.PENDING
    due_at: float | None = None
    expires_at: float | None = None
    timeout: float | None = None
    retry: Changes = field(default_factory=dict)
    max_retries: int = 0
    tags: tuple[str, ...] = ()
    parents: Mapping[str, str] = field(default_factory=dict)
    on_parent_failure: str = "cancel"
    batch_id: str | None = None
    batch_index: int | None = None
    after_batch: str | None = None
    parent_results: ParentResults = NONE
    attempt: int = 0
    failures: int = 0
    started_at: float | None = None
    ended_at: float | None = None
    payload: bytes | None = None
    error: Error | None = None
    cancel_reason: str | None = None
    progress: Progress | None = None
    attempts: list[Attempt] = field(default_factory=list)

    def report(self, number: int, fraction: float, message: str) -> None:
        """What `report_progress` says."""
        self.progress = Progress(fraction=fraction, message=message)

    def end(self, state: TaskState, now: float) -> None:
        self.state, self.ended_at, self.due_at = state, now, None

    def judge(self, outcome: Outcome, now: float) -> None:
        """What follows from an attempt."""
        made = _attempt(self.attempt, json.loads(outcome.record))
        self.attempts.append(made)
        self.error = made.error
        if outcome.kind == "retrying":
            self.failures += 1
            self.state, self.due_at = TaskState.RETRYING, now + outcome.delay_us / 1_000_000
            return
        if outcome.kind == "completed":
            self.payload, self.error = outcome.payload, None
        self.end(_ENDS[outcome.kind], now)

    @property
    def result(self) -> Any:
        return json.loads(base64.b64decode(self.payload)) if self.payload is not None else None

    def as_parent(self) -> ParentTask:
        """How its children see it."""
        why = f"{self.error.type}: {self.error.message}" if self.error else None
        return ParentTask(id=self.id, state=self.state, error=why, answer=self.payload)

    def ended(self) -> Ended:
        return Ended(task_id=self.id, status=self.state, result=self.result, error=self.error)

    def detail(self) -> TaskDetail:
        """Everything on record."""
        waits = self.state in (TaskState.SCHEDULED, TaskState.RETRYING)
        return TaskDetail(
            task_id=self.id,
            type=self.type,
            status=self.state,
            priority=self.priority,
            created_at=instant(self.created_at),
            started_at=instant(self.started_at),
            ended_at=instant(self.ended_at),
            next_attempt_at=instant(self.due_at) if waits else None,
            attempt=self.attempt,
            retry_count=self.failures,
            tags=self.tags,
            progress=self.progress,
            error=self.error,
            data=json.loads(self.data),
            result=self.result,
            max_retries=self.max_retries,
            timeout_seconds=self.timeout,
            expires_at=instant(self.expires_at),
            cancel_reason=self.cancel_reason,
            depends_on=tuple(Dependency(task_id=each, on=on) for each, on in self.parents.items()),
            on_parent_failure=self.on_parent_failure if self.parents else None,
            batch_id=self.batch_id,
            batch_index=self.batch_index,
            attempts=tuple(self.attempts),
        )


def ended_batch(batch_id: str, name: str, tasks: Sequence[LocalTask]) -> EndedBatch:
    """What the task that follows a batch is told of it."""
    states = [each.state for each in tasks]
    return EndedBatch(
        id=batch_id,
        name=name,
        total=len(tasks),
        completed=states.count(TaskState.COMPLETED),
        failed=states.count(TaskState.FAILED),
        cancelled=states.count(TaskState.CANCELLED),
        expired=states.count(TaskState.EXPIRED),
    )


def instant(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _attempt(number: int, record: Mapping[str, Any]) -> Attempt:
    error = record.get("error")
    return Attempt(
        number=number,
        worker=record["worker"],
        enqueued_at=instant(record["enqueued_at"] / 1_000_000),
        started_at=instant(record["started_at"] / 1_000_000),
        ended_at=instant(record["ended_at"] / 1_000_000),
        wait_seconds=round((record["started_at"] - record["enqueued_at"]) / 1_000_000, 6),
        run_seconds=round((record["ended_at"] - record["started_at"]) / 1_000_000, 6),
        outcome=str(record["outcome"]),
        error=Error(**error) if error else None,
        retry_delay_seconds=record.get("retry_delay"),
        logs=tuple(record.get("logs", ())),
    )
