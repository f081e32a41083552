"""The rules: they judge an observation, and yield what is wrong and what to do about it.

The name of an alert is that of its section in docs/operate/runbook.md, and of the alert for Prometheus where there is
one for the same trouble.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from urllib.parse import quote

from firmq.shared.alerts.observation import RECENT, Observation
from firmq.shared.config.settings import Settings
from firmq.shared.doctor.findings import Level as Severity
from firmq.shared.doctor.store import FILLING, check_risks
from firmq.shared.domain.duration import duration
from firmq.shared.domain.task import TaskState
from firmq.shared.stores.deploys import Ends, VersionEnds
from firmq.shared.stores.locks import LEADER
from firmq.shared.stores.queues import QueueInfo

LATE = timedelta(seconds=10)
SCHEDULE_LATE = timedelta(seconds=60)
HELD_LONG = timedelta(minutes=15)
MIN_ENDS = 20
"""Attempts of a type that must have ended under a version, and under those before, to compare them."""
MIN_FAILED = 5
MIN_RATE = 0.05
WORSE = 3
"""How many times higher the share of failed attempts must be than before."""
_NUMBERS = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five"}
RUNBOOK = "docs/operate/runbook.md"
_REDIS_RULES = {
    "redis role": "FirmqRedisReadOnly",
    "eviction": "FirmqRedisMayEvict",
    "persistence": "FirmqRedisNotDurable",
    "memory": "FirmqRedisMemoryNearlyFull",
}
_MINUTES = f"in the last {RECENT // timedelta(minutes=1)} minutes"


class Level(StrEnum):
    """How severe an alert is. Danger: tasks are not run, not accepted, or at risk."""

    WARNING = "warning"
    DANGER = "danger"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """From where on a wait, dead letters with one cause, failed runs in a row, or a share of Redis' memory alert."""

    waiting: timedelta = timedelta(minutes=5)
    dead_letters: int = 1
    failed_runs: int = 3
    memory: float = FILLING


def thresholds_of(settings: Settings) -> Thresholds:
    """Returns the thresholds of the settings."""
    return Thresholds(
        waiting=timedelta(seconds=settings.alert_waiting_time),
        dead_letters=settings.alert_dead_letters,
        failed_runs=settings.alert_schedule_failures,
        memory=settings.alert_redis_memory,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alert: `subject` is the queue, type or lock that it is about, `link` the path of the page with the details.

    Alerts are the same, however their text changes, if name and subject are. `chosen` means that a person wanted it so;
    it is shown, but not sent.
    """

    name: str
    level: Level
    title: str
    advice: str
    subject: str = ""
    link: str = ""
    chosen: bool = False

    @property
    def key(self) -> str:
        return f"{self.name}:{self.subject}"


def runbook(name: str) -> str:
    """Returns the section of the runbook about the alerts of a name."""
    return f"{RUNBOOK}#{name.lower()}"


def alerts(now: Observation, thresholds: Thresholds) -> list[Alert]:
    """Returns all alerts, the most severe first."""
    found = [
        *_redis(now, thresholds),
        *_workers(now, thresholds),
        *_housekeeping(now),
        *_schedules(now, thresholds),
        *_locks(now),
        *now.of_features,
        *_queues(now, thresholds),
        *_dead_letters(now, thresholds),
        *_versions(now),
    ]
    return sorted(found, key=lambda alert: alert.level is not Level.DANGER)


def by_cause(found: Iterable[tuple[int | None, Alert]]) -> list[list[tuple[int | None, Alert]]]:
    """Returns alerts with their partitions, grouped by their names there, in their order."""
    groups: dict[tuple[int | None, str], list[tuple[int | None, Alert]]] = {}
    for number, alert in found:
        groups.setdefault((number, alert.name), []).append((number, alert))
    return list(groups.values())


def _redis(now: Observation, thresholds: Thresholds) -> Iterator[Alert]:
    for each in check_risks(now.info, thresholds.memory):
        yield Alert(
            name=_REDIS_RULES[each.check],
            level=Level.DANGER if each.level is Severity.ERROR else Level.WARNING,
            title=f"Redis: {each.seen}",
            advice=f"{each.advice[:1].upper()}{each.advice[1:]}.",
        )
    if now.quarantined:
        noun = "key" if now.quarantined == 1 else "keys"
        yield Alert(
            name="FirmqQuarantinedKeys",
            level=Level.WARNING,
            title=f"{now.quarantined:,} {noun} in Redis held a value of the wrong type",
            advice="Moved to quarantine for a week; tasks continue. Find the program that writes to this Redis.",
            link="/audit",
        )


def _silent_workers(now: Observation) -> Iterator[Alert]:
    for worker in now.workers:
        if worker.state == "silent":
            yield Alert(
                name="FirmqWorkerSilent",
                level=Level.WARNING,
                subject=worker.name,
                title=f"Worker {worker.name} is silent",
                advice=f"{worker.reason}. Other workers take its tasks when their leases end.",
                link="/workers",
            )
    lost = [each for each in now.lost_workers if each.last_heartbeat_at and now.is_recent(each.last_heartbeat_at)]
    if lost:
        yield Alert(
            name="FirmqWorkersLost",
            level=Level.WARNING,
            title=f"{len(lost):,} worker{'s were' if len(lost) != 1 else ' was'} lost {_MINUTES}",
            advice="Killed, out of memory, or disconnected from Redis: see the reasons here and the logs of the hosts.",
            link="/workers",
        )


def _workers(now: Observation, thresholds: Thresholds) -> Iterator[Alert]:
    yield from _silent_workers(now)
    if not now.alive:
        waiting = now.counts[TaskState.PENDING]
        what = f"{waiting:,} pending tasks are waiting" if waiting else "Tasks will wait"
        yield Alert(
            name="FirmqPartMissing",
            level=Level.DANGER,
            subject="worker",
            title="No worker is alive",
            advice=f"{what}: start one with firmq worker.",
            link="/workers",
        )
        return
    yield from _queues_without_worker(now)
    yield from _types_without_worker(now, thresholds)


def _queues_without_worker(now: Observation) -> Iterator[Alert]:
    live = [worker for worker in now.workers if worker.state != "silent"]
    for queue in now.queues:
        if queue.pending and not any(worker.takes(queue.name) for worker in live):
            yield Alert(
                name="FirmqNoWorkerForQueue",
                level=Level.DANGER,
                subject=queue.name,
                title=f"No worker takes from {queue.name}",
                advice=f"{queue.pending:,} tasks wait: start a worker without WORKER_QUEUES, or with this queue in it.",
                link="/workers",
            )


def _types_without_worker(now: Observation, thresholds: Thresholds) -> Iterator[Alert]:
    for each in now.types_waiting:
        waited = now.now() - each.since
        if waited > thresholds.waiting:
            tasks = "1 task waits" if each.tasks == 1 else f"{each.tasks:,} tasks wait"
            yield Alert(
                name="FirmqNoWorkerForType",
                level=Level.WARNING,
                subject=each.name,
                title=f"No live worker can run {each.name}: {tasks}, the first for {duration(waited)}",
                advice="Start a worker with this type, in a version that accepts the data of these tasks.",
                link="/workers",
            )


def _housekeeping(now: Observation) -> Iterator[Alert]:
    late = max(now.overdue, now.unreaped)
    if late > LATE:
        yield Alert(
            name="FirmqDueTasksNotMoved",
            level=Level.DANGER,
            title=f"Due tasks are {duration(late)} late",
            advice="No housekeeper is running: start one with firmq housekeeper.",
        )


def _schedules(now: Observation, thresholds: Thresholds) -> Iterator[Alert]:
    if now.schedule_overdue > SCHEDULE_LATE:
        yield Alert(
            name="FirmqScheduleMissed",
            level=Level.WARNING,
            title=f"A schedule is {duration(now.schedule_overdue)} late",
            advice="No housekeeper turns schedules into tasks: start one, or check its log.",
            link="/schedules",
        )
    for name in now.missed_schedules:
        yield Alert(
            name="FirmqScheduleMissed",
            level=Level.WARNING,
            subject=name,
            title=f"Schedule {name} missed due times {_MINUTES}",
            advice="No housekeeper ran at that time, or Redis was unreachable. Run it now if that is needed.",
            link=f"/schedules/{quote(name, safe='')}",
        )
    for name, failed in now.failing_schedules.items():
        if failed >= thresholds.failed_runs:
            runs = "last run has" if failed == 1 else f"last {failed:,} runs have"
            yield Alert(
                name="FirmqScheduleFailing",
                level=Level.WARNING,
                subject=name,
                title=f"Schedule {name}: its {runs} failed",
                advice="Open the schedule, see why its tasks failed, and retry the last one.",
                link=f"/schedules/{quote(name, safe='')}",
            )


def _locks(now: Observation) -> Iterator[Alert]:
    for lock in now.locks:
        held = now.now() - lock.acquired_at if lock.locked and lock.acquired_at else timedelta()
        if held > HELD_LONG and lock.name != LEADER:
            yield Alert(
                name="FirmqHousekeepingJobLate",
                level=Level.WARNING,
                subject=lock.name,
                title=f"Lock {lock.name} has been held by {lock.owner} for {duration(held)}",
                advice="Its holder hangs, or has very much to do: check its log, then take the lock from it.",
                link="/locks",
            )
    for name in now.lost_locks:
        yield Alert(
            name="FirmqLocksLost",
            level=Level.WARNING,
            subject=name,
            title=f"Lock {name} was lost {_MINUTES} by a housekeeper that was at work",
            advice="It was suspended, short of processor, or cut off from Redis. No data was changed.",
            link="/locks",
        )


def _queues(now: Observation, thresholds: Thresholds) -> Iterator[Alert]:
    for queue in now.queues:
        if queue.paused is not None:
            reason = queue.paused.get("reason") or "no reason given"
            waiting = f"{queue.pending:,} task{'s' if queue.pending != 1 else ''} in it"
            yield Alert(
                name="FirmqQueuePaused",
                level=Level.WARNING,
                subject=queue.name,
                title=f"Queue {queue.name} is paused, with {waiting}",
                advice=f"{reason}.",
                link="/queues",
                chosen=True,
            )
        else:
            yield from _waits(queue, now, thresholds)


def _waits(queue: QueueInfo, now: Observation, thresholds: Thresholds) -> Iterator[Alert]:
    """Yields alerts for long waits: for a worker, or throttled, where more workers do not help."""
    ready, oldest = queue.oldest_ready_at, queue.oldest_at
    if ready and now.now() - ready > thresholds.waiting:
        takers = [each for each in now.workers if each.takes(queue.name)]
        full = takers and all(each.limit_reached(queue.name) for each in takers)
        yield Alert(
            name="FirmqOldestTaskTooOld",
            level=Level.WARNING,
            subject=queue.name,
            title=f"The oldest task in {queue.name} has waited {duration(now.now() - ready)}",
            advice="All executors that QUEUE_EXECUTORS allows are busy: raise it, or start more workers."
            if full
            else "Start more workers, or check what the workers run.",
            link="/queues",
        )
    if queue.throttled and oldest and oldest != ready and now.now() - oldest > thresholds.waiting:
        held = "1 task is" if queue.throttled == 1 else f"{queue.throttled:,} tasks are"
        yield Alert(
            name="FirmqThrottledTooLong",
            level=Level.WARNING,
            subject=queue.name,
            title=f"{held} throttled in {queue.name}, the oldest for {duration(now.now() - oldest)}",
            advice="A limit is reached, or it is another tenant's turn; more workers do not help. Check the limits.",
            link="/limits",
        )


def _dead_letters(now: Observation, thresholds: Thresholds) -> Iterator[Alert]:
    for group, recent in now.failures:
        if recent >= thresholds.dead_letters:
            have = "task has" if recent == 1 else "tasks have"
            cause = f"{group.error}: {group.message}" if group.message else group.error
            yield Alert(
                name="FirmqDeadLettersGrowing",
                level=Level.WARNING,
                subject=group.key,
                title=f"{recent:,} {group.type} {have} failed permanently {_MINUTES}",
                advice=cause,
                link=f"/dead-letters/{group.key}",
            )


def _versions(now: Observation) -> Iterator[Alert]:
    """Yields an alert for each type that fails more often since its newest version than under those before."""
    first = {each.version: each.first_at for each in now.deploys}
    known = [each for each in now.version_ends if each.version in first]
    for task_type in sorted({each.type for each in known}):
        served = [each for each in known if each.type == task_type and each.recent.total >= MIN_ENDS]
        newest = max(served, key=lambda each: first[each.version], default=None)
        if newest is None:
            continue
        since = first[newest.version]
        earlier = [each.day for each in known if each.type == task_type and first[each.version] < since]
        before = sum(earlier, Ends())
        if before.total >= MIN_ENDS and _is_worse(newest.recent, before):
            yield _version_alert(now, newest, before, since)


def _is_worse(now: Ends, before: Ends) -> bool:
    return now.failed >= MIN_FAILED and now.failure_rate >= MIN_RATE and now.failure_rate >= WORSE * before.failure_rate


def _version_alert(now: Observation, newest: VersionEnds, before: Ends, since: datetime) -> Alert:
    new = sum(each.group.type == newest.type and each.group.first_at >= since for each in now.failures)
    causes = f", {_NUMBERS.get(new, str(new))} new cause{'s' if new > 1 else ''}" if new else ""
    rates = f"{_percent(newest.recent.failure_rate)} ({_percent(before.failure_rate)} before)"
    search = f"state:failed type:{newest.type} version:{newest.version}"
    return Alert(
        name="FirmqVersionFails",
        level=Level.WARNING,
        subject=f"{newest.version}:{newest.type}",
        title=f"Since {newest.version} {newest.type} fails {rates}{causes}",
        advice=f"Roll {newest.version} back, or pause the type until it is fixed; then retry its failed tasks.",
        link=f"/tasks?search={quote(search)}",
    )


def _percent(rate: float) -> str:
    percent = 100 * rate
    return f"{percent:.0f} %" if percent >= 10 or not percent else f"{percent:.1f} %"
