"""The conditions for alerts, the dashboard, the doctor and health checks, and the alerts that they raise.

Each condition has the name of its section in docs/operate/runbook.md. Where Prometheus has an alert of that name, it
reports the same problem at the same level, with the same threshold if both measure the same value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import cache
from operator import itemgetter
from typing import Any, NamedTuple
from urllib.parse import quote

from firmq.shared.conditions.observation import RECENT, Observation
from firmq.shared.config.groups.conditions import ConditionSettings
from firmq.shared.config.stores import Place
from firmq.shared.domain.duration import duration
from firmq.shared.registry import added
from firmq.shared.stores.deploys import Ends, VersionEnds
from firmq.shared.stores.locks import LEADER
from firmq.shared.stores.presence import LIVE, RELAY, WITHOUT_LOCKS
from firmq.shared.stores.queues import QueueInfo

NEARLY_FULL = 0.9
"""Share of its memory above which a Redis that fills is a danger."""
MIN_ENDS = 20
"""Attempts of a type that must have ended under a version, and under those before, to compare them."""
MIN_FAILED, MIN_RATE = 5, 0.05
_NUMBERS = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five"}
_MINUTES = f"in the last {RECENT // timedelta(minutes=1)} minutes"


class Level(StrEnum):
    """How severe an alert is. Danger: tasks are not run, not accepted, or at risk."""

    WARNING = "warning"
    DANGER = "danger"


class Condition(NamedTuple):
    """A problem: the path of its page in the dashboard, its threshold, and the doctor's check that reports it.

    `chosen` means that a person caused it; it is shown, but not sent.
    """

    name: str
    level: Level
    page: str = ""
    over: float | str = 0
    """The threshold: seconds, a count, a share or a factor; or the name of the setting that has it."""
    check: str = ""
    chosen: bool = False

    def threshold(self, settings: ConditionSettings) -> float:
        """Returns the threshold."""
        return float(getattr(settings, self.over)) if isinstance(self.over, str) else self.over


_CONDITIONS = (
    Condition("FirmqRedisUnreachable", Level.DANGER),
    Condition("FirmqRedisReadOnly", Level.DANGER, check="redis role"),
    Condition("FirmqRedisMayEvict", Level.DANGER, check="eviction"),
    Condition("FirmqRedisNotDurable", Level.WARNING, check="persistence"),
    Condition("FirmqRedisMemoryNearlyFull", Level.WARNING, over="alert_redis_memory", check="memory"),
    Condition("FirmqQuarantinedKeys", Level.WARNING, "/audit", check="quarantine"),
    Condition("FirmqWorkerSilent", Level.WARNING, "/workers", check="workers"),
    Condition("FirmqWorkerStuck", Level.WARNING, "/workers", check="workers"),
    Condition("FirmqWorkersLost", Level.WARNING, "/workers"),
    Condition("FirmqPartMissing", Level.DANGER, "/workers", check="workers"),
    Condition("FirmqNoWorkerForQueue", Level.DANGER, "/workers", check="queues"),
    Condition("FirmqNoWorkerForType", Level.WARNING, "/workers", "alert_waiting_time"),
    Condition("FirmqDueTasksNotMoved", Level.DANGER, over=10, check="housekeeping"),
    Condition("FirmqSeveralLeaders", Level.DANGER, "/locks", check="housekeeping"),
    Condition("FirmqRelaySilent", Level.WARNING, over=LIVE, check="relay"),
    Condition("FirmqScheduleMissed", Level.WARNING, "/schedules", over=60),
    Condition("FirmqScheduleFailing", Level.WARNING, "/schedules", "alert_schedule_failures"),
    Condition("FirmqHousekeepingJobLate", Level.WARNING, "/locks", over=900),
    Condition("FirmqLocksLost", Level.WARNING, "/locks"),
    Condition("FirmqQueuePaused", Level.WARNING, "/queues", chosen=True),
    Condition("FirmqOldestTaskTooOld", Level.WARNING, "/queues", "alert_waiting_time", "capacity"),
    Condition("FirmqThrottledTooLong", Level.WARNING, "/limits", "alert_waiting_time"),
    Condition("FirmqDeadLettersGrowing", Level.WARNING, "/dead-letters", "alert_dead_letters"),
    Condition("FirmqVersionFails", Level.WARNING, "/tasks", over=3),
)


@cache
def conditions() -> Mapping[str, Condition]:
    """Returns all conditions by name, also the features'."""
    return {each.name: each for rows in (_CONDITIONS, *added("conditions")) for each in rows}


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert: `subject` is the queue, type or lock that it is about, `link` the path of the page with the details.

    Alerts are the same, however their text changes, if name and subject are.
    """

    name: str
    level: Level
    title: str
    advice: str
    subject: str = ""
    link: str = ""

    @property
    def key(self) -> str:
        return f"{self.name}:{self.subject}"


def alerts(now: Observation) -> list[Alert]:
    """Returns all alerts, the most severe first."""
    found = (*now.of_features, *(each for find in _FINDERS for each in find(now)))
    return sorted(found, key=lambda alert: alert.level is not Level.DANGER)


def by_cause(found: Iterable[tuple[Place | None, Alert]]) -> list[list[tuple[Place | None, Alert]]]:
    """Returns alerts with their stores, if there are several, grouped by their names there, in their order."""
    groups: dict[tuple[int | None, str], list[tuple[Place | None, Alert]]] = {}
    for place, alert in found:
        groups.setdefault((place.number if place else None, alert.name), []).append((place, alert))
    return list(groups.values())


def runbook(name: str) -> str:
    """Returns the section of the runbook about the alerts of a name."""
    return f"docs/operate/runbook.md#{name.lower()}"


def memory_used(said: Mapping[str, Any]) -> str:
    """Returns how much memory a Redis uses, by its INFO."""
    most, used = _memory_of(said)
    return f"{used / most:.0%} of {_megabytes(most)} used" if most else f"{_megabytes(used)} used"


def _memory_of(said: Mapping[str, Any]) -> tuple[int, int]:
    return int(said.get("maxmemory") or 0), int(said.get("used_memory") or 0)


def _megabytes(size: int) -> str:
    return f"{size / 1_048_576:,.0f} MB"


def raised(name: str, title: str, advice: str, subject: str = "", link: str = "", level: Level | None = None) -> Alert:
    """Returns an alert with the level and the page of its condition, or others."""
    about = conditions()[name]
    return Alert(name, level or about.level, title, advice, subject, link or about.page)


def _over(name: str, now: Observation) -> float:
    return conditions()[name].threshold(now.settings)


def _count(number: int, noun: str, one: str = "", many: str = "") -> str:
    """Returns "1 task waits", or "2 tasks wait"."""
    return f"{number:,} {noun} {one}".rstrip() if number == 1 else f"{number:,} {noun}s {many}".rstrip()


def _redis(now: Observation) -> Iterator[Alert]:
    said = now.info
    if said.get("role") == "slave":
        title = f"Redis: it is a replica of {said.get('master_host')}:{said.get('master_port')} and takes no writes"
        advice = "Point REDIS_URL at the primary, or use redis+sentinel:// so that it is found."
        yield raised("FirmqRedisReadOnly", title, advice)
    policy = str(said.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction":
        every = policy.startswith("allkeys")
        title = f"Redis: maxmemory-policy is {policy}: a full Redis evicts "
        title += "tasks" if every else "keys of workers and locks"
        level = Level.DANGER if every else Level.WARNING
        yield raised("FirmqRedisMayEvict", title, "Set it to noeviction.", level=level)


def _persistence(now: Observation) -> Iterator[Alert]:
    name, said = "FirmqRedisNotDurable", now.info
    if said.get("aof_enabled"):
        if said.get("aof_last_write_status", "ok") != "ok":
            title = "Redis: the append-only file cannot be written"
            yield raised(name, title, "Check the disk of Redis.", level=Level.DANGER)
    elif said.get("rdb_last_bgsave_status", "ok") != "ok":
        advice = "Check the disk of Redis, and set appendonly yes."
        yield raised(name, "Redis: the last snapshot failed", advice, level=Level.DANGER)
    elif said:
        title = "Redis: there is no append-only file: a crash of Redis loses all writes since its last snapshot"
        advice = "Set appendonly yes (managed Redis: enable persistence, or replicas with SUBMIT_REPLICAS)."
        yield raised(name, title, advice)


def _memory(now: Observation) -> Iterator[Alert]:
    most, used = _memory_of(now.info)
    if most and used > min(_over("FirmqRedisMemoryNearlyFull", now), NEARLY_FULL) * most:
        full = used > NEARLY_FULL * most
        title = f"Redis: {memory_used(now.info)}{': submissions are rejected when it is full' if full else ''}"
        advice = "Give Redis more memory, or lower RETENTION_COMPLETED, MAX_COMPLETED or MAX_RESULT_BYTES."
        level = Level.DANGER if full else Level.WARNING
        yield raised("FirmqRedisMemoryNearlyFull", title, advice, level=level)


def _quarantine(now: Observation) -> Iterator[Alert]:
    if now.quarantined:
        keys, latest = _count(now.quarantined, "key"), ", ".join(now.last_quarantined)
        title = f"{keys} in Redis held a value of the wrong type in the last week, the latest: {latest}"
        advice = "Kept for a week as firmq:quarantine:KEY; tasks continue. Find the program that writes to this Redis."
        yield raised("FirmqQuarantinedKeys", title, advice)


def _workers(now: Observation) -> Iterator[Alert]:
    for worker in now.workers:
        if worker.state == "silent":
            advice = f"{worker.reason}. Other workers take its tasks when their leases end."
            yield raised("FirmqWorkerSilent", f"Worker {worker.name} is silent", advice, worker.name)
        elif worker.reason:
            advice = "Fix the problem in its log; it tries again by itself."
            yield raised("FirmqWorkerStuck", f"Worker {worker.name}: {worker.reason}", advice, worker.name)
    lost = sum(now.at - each.last_heartbeat_at < RECENT for each in now.lost_workers if each.last_heartbeat_at)
    if lost:
        advice = "They were killed, ran out of memory or lost Redis: see the page Workers and the logs of their hosts."
        yield raised("FirmqWorkersLost", f"{_count(lost, 'worker', 'was', 'were')} lost {_MINUTES}", advice)
    if not now.alive:
        waiting = sum(queue.pending for queue in now.queues)
        what = _count(waiting, "pending task", "waits", "wait") if waiting else "Tasks will wait"
        advice = f"{what}. Start a worker with firmq worker."
        yield raised("FirmqPartMissing", "No worker is alive", advice, "worker")
    else:
        yield from _without_worker(now)


def _without_worker(now: Observation) -> Iterator[Alert]:
    for queue in now.queues:
        if queue.pending and queue.paused is None and not any(worker.takes(queue.name) for worker in now.workers):
            tasks = _count(queue.pending, "task", "waits", "wait")
            advice = f"{tasks}. Start a worker without WORKER_QUEUES, or with this queue in it."
            yield raised("FirmqNoWorkerForQueue", f"No worker takes from {queue.name}", advice, queue.name)
    for each in now.types_waiting:
        waited = now.seconds_since(each.since)
        if waited > _over("FirmqNoWorkerForType", now):
            tasks = _count(each.tasks, "task", "waits", "wait")
            title = f"No live worker can run {each.name}: {tasks}, the first for {duration(waited)}"
            advice = "Start a worker with this type, in a version that accepts the data of these tasks."
            yield raised("FirmqNoWorkerForType", title, advice, each.name)


def _housekeeping(now: Observation) -> Iterator[Alert]:
    late = {f'a task in queue "{queue.name}"': now.seconds_since(queue.due_at) for queue in now.queues}
    late["a task whose lease has ended"] = now.seconds_since(now.lease_ended_at)
    what, seconds = max(late.items(), key=itemgetter(1))
    if seconds > _over("FirmqDueTasksNotMoved", now):
        advice = "Start a housekeeper with firmq housekeeper, or restart the one that hangs."
        yield raised("FirmqDueTasksNotMoved", f"Due tasks are {duration(seconds)} late, such as {what}", advice)
    live = [name for name, silent in now.silences.items() if silent < LIVE and name != RELAY]
    alone = [name.removesuffix(WITHOUT_LOCKS) for name in live if name.endswith(WITHOUT_LOCKS)]
    if alone and len(live) > 1:
        title = (
            f"{len(live)} housekeepers run, {len(alone)} without locks ({', '.join(alone)}): each of them runs all jobs"
        )
        advice = "Start them with HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED=true, the default."
        yield raised("FirmqSeveralLeaders", title, advice)


def _relay(now: Observation) -> Iterator[Alert]:
    """Yields an alert when a relay that ran in the last week reports no more: rows may be added without any error."""
    silent = now.silences.get(RELAY, 0)
    if silent >= _over("FirmqRelaySilent", now):
        advice = "Rows of the outbox wait. Start it: firmq outbox, or with Django: manage.py firmq_outbox."
        yield raised("FirmqRelaySilent", f"No relay has reported for {duration(silent)}", advice)


def _schedules(now: Observation) -> Iterator[Alert]:
    late = now.seconds_since(now.schedule_due_at)
    if late > _over("FirmqScheduleMissed", now):
        advice = "No housekeeper turns schedules into tasks: start one, or check its log."
        yield raised("FirmqScheduleMissed", f"A schedule is {duration(late)} late", advice)
    for name in now.missed_schedules:
        title = f"Schedule {name} missed due times {_MINUTES}"
        advice = "No housekeeper ran at that time, or Redis was unreachable. Run it now if that is needed."
        yield raised("FirmqScheduleMissed", title, advice, name, f"/schedules/{quote(name, safe='')}")
    for name, failed in now.failing_schedules.items():
        if failed >= _over("FirmqScheduleFailing", now):
            title = f"Schedule {name}: its last {'run has' if failed == 1 else f'{failed:,} runs have'} failed"
            advice = "Open the schedule, see why its tasks failed, and retry the last one."
            yield raised("FirmqScheduleFailing", title, advice, name, f"/schedules/{quote(name, safe='')}")


def _locks(now: Observation) -> Iterator[Alert]:
    for lock in now.locks:
        held = now.seconds_since(lock.acquired_at) if lock.locked and lock.name != LEADER else 0
        if held > _over("FirmqHousekeepingJobLate", now):
            title = f"Lock {lock.name} has been held by {lock.owner} for {duration(held)}"
            advice = "Its holder hangs or is overloaded: check its log, then release the lock."
            yield raised("FirmqHousekeepingJobLate", title, advice, lock.name)
    for name in now.lost_locks:
        title = f"Lock {name} was lost {_MINUTES} by a housekeeper that was at work"
        advice = "It was suspended, short of processor, or cut off from Redis. No data was changed."
        yield raised("FirmqLocksLost", title, advice, name)


def _queues(now: Observation) -> Iterator[Alert]:
    for queue in now.queues:
        if queue.paused is not None:
            title = f"Queue {queue.name} is paused, with {_count(queue.pending, 'task')} in it"
            advice = str(queue.paused.get("reason") or "No reason was given.")
            yield raised("FirmqQueuePaused", title, advice, queue.name)
        else:
            yield from _waits(queue, now)


def _waits(queue: QueueInfo, now: Observation) -> Iterator[Alert]:
    """Yields alerts for long waits: for a worker, or throttled, where more workers do not help."""
    waited = now.seconds_since(queue.oldest_ready_at)
    if waited > _over("FirmqOldestTaskTooOld", now):
        takers = [each for each in now.workers if each.takes(queue.name)]
        advice = "Start more workers, or check the tasks that they run."
        if takers and all(each.limit_reached(queue.name) for each in takers):
            advice = "All executors that QUEUE_EXECUTORS allows are busy: raise it, or start more workers."
        title = f"The oldest task in {queue.name} has waited {duration(waited)}"
        yield raised("FirmqOldestTaskTooOld", title, advice, queue.name)
    waited = now.seconds_since(queue.oldest_at) if queue.oldest_at != queue.oldest_ready_at else 0
    if queue.throttled and waited > _over("FirmqThrottledTooLong", now):
        held = _count(queue.throttled, "task", "is", "are")
        title = f"{held} throttled in {queue.name}, the oldest for {duration(waited)}"
        advice = "A limit is reached, or it is another tenant's turn; more workers do not help. Check the limits."
        yield raised("FirmqThrottledTooLong", title, advice, queue.name)


def _failures(now: Observation) -> Iterator[Alert]:
    for group, recent in now.failures:
        if recent >= _over("FirmqDeadLettersGrowing", now):
            title = f"{_count(recent, f'{group.type} task', 'has', 'have')} failed permanently {_MINUTES}"
            cause = f"{group.error}: {group.message}" if group.message else group.error
            yield raised("FirmqDeadLettersGrowing", title, cause, group.key, f"/dead-letters/{group.key}")


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
        before = sum((each.day for each in known if each.type == task_type and first[each.version] < since), Ends())
        if before.total >= MIN_ENDS and _is_worse(newest.recent, before, _over("FirmqVersionFails", now)):
            new = sum(each.group.type == task_type and each.group.first_at >= since for each in now.failures)
            yield _version_fails(newest, before, new)


def _is_worse(now: Ends, before: Ends, times: float) -> bool:
    often = now.failed >= MIN_FAILED and now.failure_rate >= MIN_RATE
    return often and now.failure_rate >= times * before.failure_rate


def _version_fails(newest: VersionEnds, before: Ends, new: int) -> Alert:
    causes = f", {_NUMBERS.get(new, str(new))} new cause{'s' if new > 1 else ''}" if new else ""
    rates = f"{_percent(newest.recent.failure_rate)} ({_percent(before.failure_rate)} before)"
    advice = f"Roll {newest.version} back, or pause the type until it is fixed; then retry its failed tasks."
    return raised(
        "FirmqVersionFails",
        f"Since {newest.version} {newest.type} fails {rates}{causes}",
        advice,
        f"{newest.version}:{newest.type}",
        f"/tasks?search={quote(f'state:failed type:{newest.type} version:{newest.version}')}",
    )


def _percent(rate: float) -> str:
    percent = 100 * rate
    return f"{percent:.0f} %" if percent >= 10 or not percent else f"{percent:.1f} %"


_FINDERS: tuple[Callable[[Observation], Iterator[Alert]], ...] = (
    *(_redis, _persistence, _memory, _quarantine, _workers, _housekeeping, _relay, _schedules),
    *(_locks, _queues, _failures, _versions),
)
