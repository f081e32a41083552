"""Converts stored tasks to the answers of direct submission, from which the gateway makes its own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from firmq.shared.domain import task as stored
from firmq.shared.domain.retry import RetryPolicy
from firmq.shared.domain.step import Step
from firmq.shared.submission.answers import (
    Attempt,
    Delivery,
    Dependency,
    Ended,
    Error,
    Progress,
    StoredStep,
    Task,
    TaskDetail,
    Webhook,
)


def task(summary: stored.TaskSummary) -> Task:
    """Returns a task in list form, which has no traceback."""
    return Task(**_summary(summary, with_traceback=False))


def detail(
    found: stored.TaskDetail,
    policy: RetryPolicy,
    deliveries: Sequence[stored.TaskSummary] = (),
    warnings: Sequence[str] = (),
) -> TaskDetail:
    """Returns a task with its whole record; `policy` is its type's, `deliveries` are its webhook deliveries."""
    return TaskDetail(
        **stored.as_given(found) | _summary(found.summary, with_traceback=True),
        data=found.data,
        result=found.result,
        max_retries=policy.override(found.retry).max_retries,
        timeout_seconds=found.timeout.total_seconds() if found.timeout else None,
        expires_at=found.expires_at,
        cancel_reason=found.cancel_requested,
        unique_key=found.unique_key,
        throttled_by=found.throttled_by,
        refusal=found.refusal,
        warnings=tuple(warnings),
        trace_parent=found.meta.get("traceparent"),
        dependents=tuple(found.children),
        dependents_count=found.children_count,
        webhook=webhook(found.webhook),
        deliveries=tuple(map(_delivery, deliveries)),
        delivery_of=found.delivery_of,
        depends_on=tuple(Dependency(task_id=each.task_id, on=each.on) for each in found.parents),
        on_parent_failure=found.on_parent_failure if found.parents else None,
        batch_id=found.batch.batch_id if found.batch else None,
        batch_index=found.batch.index if found.batch else None,
        attempts=tuple(map(_attempt, found.attempts)),
        awaits=found.summary.awaits,
        steps=tuple(map(step, found.steps)),
    )


def webhook(named: stored.Webhook | None) -> Webhook | None:
    """Returns the webhook of a task."""
    return Webhook(url=named.url, events=tuple(named.events)) if named else None


def ended(found: stored.TaskDetail) -> Ended:
    """Returns the end of a task with its result or error."""
    summary = found.summary
    return Ended(task_id=summary.id, status=summary.state, result=found.result, error=_error(summary.error))


def _summary(summary: stored.TaskSummary, *, with_traceback: bool) -> dict[str, Any]:
    progress = summary.progress
    return {
        "task_id": summary.id,
        "type": summary.type,
        "status": summary.state,
        "queue": summary.queue,
        "created_at": summary.created_at,
        "started_at": summary.started_at,
        "ended_at": summary.ended_at,
        "next_attempt_at": summary.due_at,
        "attempt": summary.attempt,
        "retry_count": summary.failures,
        "crash_count": summary.crashes,
        "worker": summary.worker,
        "tags": summary.tags,
        "progress": Progress(fraction=progress.fraction, message=progress.message) if progress else None,
        "error": _error(summary.error, with_traceback=with_traceback),
        "submitted_by": summary.submitted_by,
        "score": summary.score,
        "archived": summary.archived,
        "corrupt": summary.corrupt,
    }


def _delivery(made: stored.TaskSummary) -> Delivery:
    return Delivery(
        task_id=made.id,
        status=made.state,
        attempts=made.attempt,
        created_at=made.created_at,
        ended_at=made.ended_at,
        next_attempt_at=made.due_at,
        error=_error(made.error, with_traceback=False),
    )


def _attempt(made: stored.Attempt) -> Attempt:
    return Attempt(
        number=made.number,
        worker=made.worker,
        enqueued_at=made.enqueued_at,
        started_at=made.started_at,
        ended_at=made.ended_at,
        wait_seconds=_seconds(made.enqueued_at, made.started_at),
        run_seconds=_seconds(made.started_at, made.ended_at),
        outcome=made.outcome,
        error=_error(made.error),
        retry_delay_seconds=made.retry_delay.total_seconds() if made.retry_delay is not None else None,
        trace_id=made.trace_id,
        app_version=made.app_version,
        logs=made.logs,
    )


def step(made: Step) -> StoredStep:
    """Returns a stored step."""
    return StoredStep(
        name=made.name,
        kind=made.kind,
        attempt=made.attempt,
        tries=made.tries,
        started_at=made.started_at,
        ended_at=made.ended_at,
        seconds=_seconds(made.started_at, made.ended_at),
        size_bytes=made.size,
    )


def _error(info: stored.ErrorInfo | None, *, with_traceback: bool = True) -> Error | None:
    if info is None:
        return None
    traceback = info.traceback if with_traceback else None
    return Error(type=info.type, message=info.message, place=info.place or None, traceback=traceback)


def _seconds(since: datetime | None, until: datetime | None) -> float | None:
    return round((until - since).total_seconds(), 6) if since and until else None
