"""The alerts of the overview: what is wrong, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from taskqueue.dashboard.overview import Snapshot
from taskqueue.dashboard.present import duration
from taskqueue.shared.doctor.findings import Level
from taskqueue.shared.doctor.store import check_risks
from taskqueue.shared.domain.task import TaskState
from taskqueue.shared.stores.queues import QueueInfo

LATE = timedelta(seconds=10)
WAITING_LONG = timedelta(minutes=5)
RECENT_MINUTES = 10


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert; `level` is danger or warning, `link` is the path of the page with the details."""

    level: str
    title: str
    advice: str
    link: str = ""


def alerts(now: Snapshot) -> list[Alert]:
    """Returns all alerts, the most severe first."""
    found = [*_store(now), *_workers(now), *_housekeeping(now), *_queues(now), *_dead_letters(now)]
    return sorted(found, key=lambda alert: alert.level != "danger")


def _store(now: Snapshot) -> Iterator[Alert]:
    for each in check_risks(now.info):
        level = "danger" if each.level is Level.ERROR else "warning"
        yield Alert(level, f"Redis: {each.seen}", f"{each.advice[:1].upper()}{each.advice[1:]}.")
    if now.quarantined:
        noun = "key" if now.quarantined == 1 else "keys"
        yield Alert(
            "warning",
            f"{now.quarantined:,} {noun} in Redis held a value of the wrong type",
            "Moved to quarantine for a week; tasks continue. Find the program that writes to this Redis.",
            "/audit",
        )


def _silent_workers(now: Snapshot) -> Iterator[Alert]:
    for worker in now.workers:
        if worker.state == "silent":
            yield Alert(
                "warning",
                f"Worker {worker.name} is silent",
                f"{worker.reason}. Other workers take its tasks when their leases end.",
                "/workers",
            )
    lost = [each for each in now.lost_workers if each.last_heartbeat_at and _is_recent(each.last_heartbeat_at, now)]
    if lost:
        yield Alert(
            "warning",
            f"{len(lost):,} worker{'s were' if len(lost) != 1 else ' was'} lost in the last {RECENT_MINUTES} minutes",
            "Killed, out of memory, or disconnected from Redis: see the reasons here and the logs of the hosts.",
            "/workers",
        )


def _is_recent(at: datetime, now: Snapshot) -> bool:
    return now.now() - at < timedelta(minutes=RECENT_MINUTES)


def _workers(now: Snapshot) -> Iterator[Alert]:
    yield from _silent_workers(now)
    if not now.alive:
        waiting = now.counts[TaskState.PENDING]
        what = f"{waiting:,} pending tasks are waiting" if waiting else "Tasks will wait"
        yield Alert("danger", "No worker is alive", f"{what}: start one with taskqueue worker.", "/workers")
        return
    live = [worker for worker in now.workers if worker.state != "silent"]
    for queue in now.queues:
        if queue.pending and not any(worker.takes(queue.name) for worker in live):
            yield Alert(
                "danger",
                f"No worker takes from {queue.name}",
                f"{queue.pending:,} tasks wait: start a worker without WORKER_QUEUES, or with {queue.name} in it.",
                "/workers",
            )


def _housekeeping(now: Snapshot) -> Iterator[Alert]:
    late = max(now.overdue, now.unreaped)
    if late > LATE:
        yield Alert(
            "danger",
            f"Due tasks are {duration(late)} late",
            "No housekeeper is running: start one with taskqueue housekeeper.",
        )


def _queues(now: Snapshot) -> Iterator[Alert]:
    for queue in now.queues:
        if queue.paused is not None:
            reason = queue.paused.get("reason") or "no reason given"
            waiting = f"{queue.pending:,} task{'s' if queue.pending != 1 else ''} in it"
            yield Alert("warning", f"Queue {queue.name} is paused, with {waiting}", f"{reason}.", "/queues")
        else:
            yield from _waits(queue, now)


def _waits(queue: QueueInfo, now: Snapshot) -> Iterator[Alert]:
    """Yields alerts for long waits: for a worker, or throttled, where more workers do not help."""
    ready, oldest = queue.oldest_ready_at, queue.oldest_at
    if ready and now.now() - ready > WAITING_LONG:
        takers = [each for each in now.workers if each.takes(queue.name)]
        full = takers and all(each.limit_reached(queue.name) for each in takers)
        yield Alert(
            "warning",
            f"The oldest task in {queue.name} has waited {duration(now.now() - ready)}",
            "All executors that QUEUE_EXECUTORS allows are busy: raise it, or start more workers."
            if full
            else "Start more workers, or check what the workers run.",
            "/queues",
        )
    if queue.throttled and oldest and oldest != ready and now.now() - oldest > WAITING_LONG:
        held = "1 task is" if queue.throttled == 1 else f"{queue.throttled:,} tasks are"
        yield Alert(
            "warning",
            f"{held} throttled in {queue.name}, the oldest for {duration(now.now() - oldest)}",
            "A limit is reached, or it is another tenant's turn; more workers do not help. Check the limits.",
            "/limits",
        )


def _dead_letters(now: Snapshot) -> Iterator[Alert]:
    fresh = now.total("failed", RECENT_MINUTES)
    if fresh:
        noun = "task has" if fresh == 1 else "tasks have"
        yield Alert(
            "warning",
            f"{fresh:,} {noun} failed for good in the last {RECENT_MINUTES} minutes",
            "Check the causes.",
            "/dead-letters",
        )
