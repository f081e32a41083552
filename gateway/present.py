"""Converts stored records to response models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from taskqueue.gateway import schemas
from taskqueue.shared.domain.retry import RetryPolicy
from taskqueue.shared.domain.task import Attempt, ErrorInfo, Progress, TaskDetail, TaskSummary, Webhook
from taskqueue.shared.stores.batches import Batch
from taskqueue.shared.stores.queues import QueueInfo
from taskqueue.shared.stores.task_types import Offer, TaskType
from taskqueue.shared.stores.workers import WorkerInfo


def task(summary: TaskSummary) -> schemas.TaskView:
    """Returns a task in list form."""
    return schemas.TaskView(**_summary(summary, with_traceback=False))


def detail(
    found: TaskDetail, policy: RetryPolicy, deliveries: Sequence[TaskSummary] = (), warnings: Sequence[str] = ()
) -> schemas.TaskDetailView:
    """Returns a task with all details; `policy` is that of its type, `deliveries` are its webhook deliveries."""
    return schemas.TaskDetailView(
        **_summary(found.summary, with_traceback=True),
        data=found.data,
        result=found.result,
        max_retries=policy.override(found.retry).max_retries,
        timeout_seconds=found.timeout.total_seconds() if found.timeout else None,
        expires_at=found.expires_at,
        cancel_reason=found.cancel_requested,
        unique_key=found.unique_key,
        limit_key=found.limit_key,
        fair_key=found.fair_key,
        throttled_by=found.throttled_by,
        refusal=found.refusal,
        warnings=list(warnings),
        trace_parent=found.meta.get("traceparent"),
        depends_on=[schemas.DependencyView(task_id=each.task_id, on=each.on) for each in found.parents],
        on_parent_failure=found.on_parent_failure if found.parents else None,
        dependents=list(found.children),
        dependents_count=found.children_count,
        batch_id=found.batch.batch_id if found.batch else None,
        batch_index=found.batch.index if found.batch else None,
        webhook=webhook(found.webhook),
        deliveries=[delivery(each) for each in deliveries],
        delivery_of=found.delivery_of,
        attempts=[attempt(each) for each in found.attempts],
    )


def webhook(named: Webhook | None) -> schemas.WebhookView | None:
    """Returns the webhook of a task."""
    return schemas.WebhookView(url=named.url, events=list(named.events)) if named else None


def delivery(made: TaskSummary) -> schemas.DeliveryView:
    """Returns a webhook delivery."""
    return schemas.DeliveryView(
        task_id=made.id,
        status=made.state,
        attempts=made.attempt,
        created_at=made.created_at,
        ended_at=made.ended_at,
        next_attempt_at=made.due_at,
        error=error(made.error, with_traceback=False),
    )


def attempt(made: Attempt) -> schemas.AttemptView:
    """Returns an attempt."""
    return schemas.AttemptView(
        number=made.number,
        worker=made.worker,
        enqueued_at=made.enqueued_at,
        started_at=made.started_at,
        ended_at=made.ended_at,
        wait_seconds=_seconds(made.enqueued_at, made.started_at),
        run_seconds=_seconds(made.started_at, made.ended_at),
        outcome=made.outcome,
        error=error(made.error),
        retry_delay_seconds=made.retry_delay.total_seconds() if made.retry_delay is not None else None,
        trace_id=made.trace_id,
        app_version=made.app_version,
        logs=list(made.logs),
    )


def result(found: TaskDetail) -> schemas.ResultView:
    """Returns the end of a task with its result or error."""
    summary = found.summary
    return schemas.ResultView(task_id=summary.id, status=summary.state, result=found.result, error=error(summary.error))


def error(info: ErrorInfo | None, with_traceback: bool = True) -> schemas.ErrorView | None:
    """Returns an error."""
    if info is None:
        return None
    return schemas.ErrorView(
        type=info.type,
        message=info.message,
        place=info.place or None,
        traceback=info.traceback if with_traceback else None,
    )


def worker(info: WorkerInfo) -> schemas.WorkerView:
    """Returns a worker."""
    return schemas.WorkerView(
        name=info.name,
        state=info.state,
        reason=info.reason,
        host=info.host,
        pid=info.pid,
        version=info.version,
        app_version=info.app_version or None,
        queues=list(info.queues),
        executors=info.executors,
        slots=info.slots or info.executors,
        active=info.active,
        started_at=info.started_at,
        last_heartbeat_at=info.last_heartbeat_at,
        held=info.held,
        completed=info.completed,
        failed=info.failed,
        retried=info.retried,
        crashed=info.crashed,
        lost=info.lost,
        busy_seconds=info.busy_seconds,
        memory_bytes=info.memory_bytes,
        running=[
            schemas.RunningTaskView(task_id=each.id, type=each.type, seconds=each.seconds) for each in info.running
        ],
        queue_executors=[schemas.QueueExecutorsView(**asdict(each)) for each in info.queue_executors],
        blocking_types=[schemas.BlockingTypeView(**asdict(each)) for each in info.blocking_types],
    )


def task_type(published: TaskType, offer: Offer, policy: RetryPolicy) -> schemas.TypeView:
    """Returns a task type with its availability; `policy` is the general retry policy."""
    effective = policy.override(published.retry)
    return schemas.TypeView(
        name=published.name,
        description=published.description,
        data_schema=dict(published.schema),
        timeout_seconds=published.timeout,
        retry=schemas.RetryPolicyView(**asdict(effective)),
        live=offer.live,
        versions=len(offer.versions),
        last_seen_at=offer.last_seen_at,
        last_seen_on=offer.host,
    )


def queue(info: QueueInfo, default: str) -> schemas.QueueView:
    """Returns a queue."""
    paused = info.paused or {}
    paused_at = paused.get("at")
    return schemas.QueueView(
        name=info.name,
        weight=info.weight,
        default=info.name == default,
        pending=info.pending,
        scheduled=info.scheduled,
        retrying=info.retrying,
        foreign=info.foreign,
        oldest_at=info.oldest_at,
        paused=info.paused is not None,
        paused_reason=paused.get("reason"),
        paused_by=paused.get("by") or None,
        paused_at=datetime.fromisoformat(paused_at) if paused_at else None,
    )


def batch(found: Batch) -> schemas.BatchView:
    """Returns a batch."""
    return schemas.BatchView(
        batch_id=found.id,
        name=found.terms.name,
        status=found.status,
        progress=round(found.progress, 4),
        total=found.total,
        ended=found.ended,
        counts=dict(found.counts),
        removed=found.removed,
        max_running=found.terms.max_running,
        stop_on_error=found.terms.stop_on_error,
        then=found.terms.then,
        created_at=found.created_at,
        ended_at=found.done_at,
        stopped=found.stopped,
        stopped_at=found.stopped_at,
        work=found.work,
    )


def _summary(summary: TaskSummary, with_traceback: bool) -> dict[str, Any]:
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
        "tags": list(summary.tags),
        "progress": _progress(summary.progress),
        "error": error(summary.error, with_traceback),
        "corrupt": summary.corrupt,
    }


def _progress(said: Progress | None) -> schemas.ProgressView | None:
    return schemas.ProgressView(fraction=said.fraction, message=said.message) if said else None


def _seconds(since: datetime | None, until: datetime | None) -> float | None:
    return round((until - since).total_seconds(), 6) if since and until else None
