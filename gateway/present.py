"""Converts stored records to response models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from firmq.gateway import schemas
from firmq.gateway.auth.visible import visible
from firmq.shared.domain.retry import RetryPolicy
from firmq.shared.domain.step import Step
from firmq.shared.domain.task import Attempt, ErrorInfo, Progress, TaskDetail, TaskSummary, Webhook
from firmq.shared.history.histogram import Histogram, percentiles
from firmq.shared.stores.batches import Batch
from firmq.shared.stores.pauses import Pause
from firmq.shared.stores.queues import QueueInfo
from firmq.shared.stores.task_types import Offer, TaskType
from firmq.shared.stores.workers import WorkerInfo

if TYPE_CHECKING:
    from firmq.shared.history.analytics import Report, Totals


def task(summary: TaskSummary) -> schemas.TaskView:
    """Returns a task in list form."""
    return schemas.TaskView(**_summary(summary, with_traceback=False))


def detail(
    found: TaskDetail, policy: RetryPolicy, deliveries: Sequence[TaskSummary] = (), warnings: Sequence[str] = ()
) -> schemas.TaskDetailView:
    """Returns a task with all details; `policy` is that of its type, `deliveries` are its webhook deliveries."""
    return schemas.TaskDetailView(
        **_summary(found.summary, with_traceback=True),
        data=visible(found.data),
        result=visible(found.result),
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
        awaits=found.summary.awaits,
        steps=[step(each) for each in found.steps],
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


def step(stored: Step) -> schemas.StepView:
    """Returns a stored step."""
    return schemas.StepView(
        name=stored.name,
        kind=stored.kind,
        attempt=stored.attempt,
        tries=stored.tries,
        started_at=stored.started_at,
        ended_at=stored.ended_at,
        seconds=_seconds(stored.started_at, stored.ended_at),
        size_bytes=stored.size,
    )


def result(found: TaskDetail) -> schemas.ResultView:
    """Returns the end of a task with its result or error."""
    summary = found.summary
    return schemas.ResultView(
        task_id=summary.id, status=summary.state, result=visible(found.result), error=error(summary.error)
    )


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


def task_type(published: TaskType, offer: Offer, policy: RetryPolicy, pause: Pause | None) -> schemas.TypeView:
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
        **_paused(pause),
    )


def queue(info: QueueInfo, default: str) -> schemas.QueueView:
    """Returns a queue."""
    return schemas.QueueView(
        name=info.name,
        weight=info.weight,
        default=info.name == default,
        pending=info.pending,
        scheduled=info.scheduled,
        retrying=info.retrying,
        foreign=info.foreign,
        oldest_at=info.oldest_at,
        **_paused(info.paused),
    )


def _paused(pause: Pause | None) -> dict[str, Any]:
    about = pause or {}
    times = {name: datetime.fromisoformat(about[name]) for name in ("at", "until") if name in about}
    return {
        "paused": pause is not None,
        "paused_reason": about.get("reason"),
        "paused_by": about.get("by") or None,
        "paused_at": times.get("at"),
        "paused_until": times.get("until"),
    }


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


def analytics(found: Report) -> schemas.AnalyticsView:
    """Returns the statistics of a range."""
    wanted = found.wanted
    length = wanted.ends - wanted.begins
    return schemas.AnalyticsView(
        since=_second(wanted.begins),
        until=_second(wanted.ends),
        step_seconds=wanted.step,
        total=schemas.TotalsView(**_totals(found.total)),
        before=schemas.TotalsView(**_totals(found.before)),
        points=[_point(found.start_of(at), each) for at, each in enumerate(found.points)],
        points_before=[_point(found.start_of(at) - length, each) for at, each in enumerate(found.points_before)],
        types=_groups(found.types),
        queues=_groups(found.queues),
        app_versions=_groups(found.versions),
        causes=[
            schemas.CauseView(
                cause=each.key, type=each.type, error=each.error, failed=each.failed, failed_before=each.before
            )
            for each in found.causes
        ],
    )


def _point(at: int, totals: Totals) -> schemas.PointView:
    return schemas.PointView(at=_second(at), **_totals(totals))


def _groups(groups: Mapping[str, Totals]) -> list[schemas.GroupView]:
    return [schemas.GroupView(name=name, **_totals(each)) for name, each in groups.items()]


def _totals(totals: Totals) -> dict[str, Any]:
    counts = ("completed", "failed", "cancelled", "expired", "retried", "crashed")
    return {
        **{name: totals.counts[name] for name in counts},
        "failure_rate": round(totals.failure_rate, 6),
        "wait": _durations(totals.wait),
        "run": _durations(totals.run),
    }


def _durations(durations: Histogram) -> schemas.DurationsView:
    p50, p95, p99 = percentiles(durations, (0.5, 0.95, 0.99))
    return schemas.DurationsView(p50=p50, p95=p95, p99=p99)


def _second(at: int) -> datetime:
    return datetime.fromtimestamp(at, UTC)


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
        "submitted_by": summary.submitted_by,
        "score": summary.score,
        "archived": summary.archived,
        "corrupt": summary.corrupt,
    }


def _progress(said: Progress | None) -> schemas.ProgressView | None:
    return schemas.ProgressView(fraction=said.fraction, message=said.message) if said else None


def _seconds(since: datetime | None, until: datetime | None) -> float | None:
    return round((until - since).total_seconds(), 6) if since and until else None
