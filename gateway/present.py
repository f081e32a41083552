"""Converts stored records to response models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from firmq.gateway import schemas
from firmq.gateway.auth.visible import visible
from firmq.shared.domain.retry import RetryPolicy
from firmq.shared.domain.task import TaskDetail, TaskSummary
from firmq.shared.stores.batches import Batch
from firmq.shared.stores.pauses import Pause
from firmq.shared.stores.queues import QueueInfo
from firmq.shared.stores.task_types import Offer, TaskType
from firmq.shared.stores.workers import WorkerInfo
from firmq.shared.submission import answers, reading


def detail(
    found: TaskDetail, policy: RetryPolicy, deliveries: Sequence[TaskSummary] = (), warnings: Sequence[str] = ()
) -> answers.TaskDetail:
    """Returns a task as the caller may see it; see `reading.detail`."""
    shown = reading.detail(found, policy, deliveries, warnings)
    return replace(shown, data=visible(found.data), result=visible(found.result))


def result(found: TaskDetail) -> answers.Ended:
    """Returns the end of a task as the caller may see it."""
    return replace(reading.ended(found), result=visible(found.result))


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
