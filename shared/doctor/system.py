"""Checks workers, task types, capacity and housekeeping from their records in Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redis.exceptions import ResponseError

from firmq.shared.conditions.observation import Observer
from firmq.shared.doctor.findings import Finding, Level, doubtful, fine, judged, listed, wrong
from firmq.shared.redis import schema_version
from firmq.shared.redis.client import keys_of, raw, text
from firmq.shared.redis.scripts import Scripts
from firmq.shared.registry import added
from firmq.shared.stores.failure_groups import FailureGroups
from firmq.shared.stores.presence import LIVE, RELAY, WITHOUT_LOCKS
from firmq.shared.stores.task_types import TaskTypes
from firmq.shared.stores.waiting import explain_waiting
from firmq.shared.stores.workers import capacity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from redis import Redis

    from firmq.shared.conditions.observation import Observation
    from firmq.shared.config.settings import Settings
    from firmq.shared.redis.keys import Keys
    from firmq.shared.stores.queues import QueueInfo
    from firmq.shared.stores.waiting import Waiting
    from firmq.shared.stores.workers import WorkerInfo

BUSY = 60
"""Seconds without a free executor after which a warning is due."""

LOOKED_AT = 100
"""Causes of dead letters that are examined."""


def check(redis: Redis, settings: Settings) -> list[Finding]:
    """Returns the findings about the data and the parts of the system, in reading order."""
    data = _format(redis)
    if data.level is Level.ERROR:
        return [data]  # the other records cannot be read either
    scripts = Scripts(redis)
    now = Observer(scripts, settings).observe()
    return [
        data,
        *(judged(now, "quarantine") or [fine("quarantine", "no key held a value of the wrong type in the last week")]),
        _foreign(now.queues),
        *_workers(now, scripts.keys),
        *([check_capacity(now)] if now.workers else []),
        check_waiting(explain_waiting(scripts, now.queues, now.workers)),
        *_refused(scripts),
        _types(redis),
        *check_housekeeping(now),
        *check_relay(now),
        *(finding for check in added("checks") for finding in check(redis, settings, now)),
    ]


def _format(redis: Redis) -> Finding:
    key = keys_of(redis).FORMAT
    try:
        found = redis.get(key)
    except ResponseError:
        return wrong("data format", schema_version.wrong_type(key), "see docs/operate/upgrade.md")
    if found is None:
        return fine("data format", "not written yet")
    refusal = schema_version.judge(raw(found), key).refusal
    if refusal:
        return wrong("data format", refusal, "see docs/operate/upgrade.md")
    return fine("data format", text(found))


def _foreign(queues: Sequence[QueueInfo]) -> Finding:
    found = {queue.name: queue.foreign for queue in queues if queue.foreign}
    if not found:
        return fine("foreign jobs", "no RQ program enqueues into the queues of this system")
    return doubtful(
        "foreign jobs",
        f"RQ programs put jobs into queues of this system: {', '.join(f'{n} in {name}' for name, n in found.items())}",
        "they are parked and not run: move them with firmq queues move-foreign NAME --to QUEUE, and "
        "use other queue names in those programs",
    )


def _workers(now: Observation, keys: Keys) -> list[Finding]:
    workers, unreadable = now.workers, now.unreadable_workers
    if unreadable:
        seen = f"{len(workers) + len(unreadable)} alive, with a corrupt record: {', '.join(unreadable)}"
        why = "a worker rewrites its record within seconds; a name that remains was added to Redis by hand"
        return [doubtful("workers", seen, f"{why}: remove it with ZREM {keys.WORKERS} NAME")]
    if not workers:
        return [doubtful("workers", "none is alive: tasks are accepted but not run", "start one: firmq worker")]
    seen = f"{len(workers)} alive with {capacity(workers)}"
    return [fine("workers", seen), *check_queues(workers, [queue.name for queue in now.queues])]


def check_queues(workers: Sequence[WorkerInfo], queues: Sequence[str]) -> list[Finding]:
    """Returns findings when workers cannot run their tasks, or none takes from some of these queues."""
    advice = "fix the problem in its log; it tries again by itself"
    stuck = [doubtful("workers", f"worker {each.name}: {each.reason}", advice) for each in workers if each.reason]
    forgotten = [queue for queue in queues if not any(each.takes(queue) for each in workers)]
    if not forgotten:
        return stuck
    advice = "start one without WORKER_QUEUES, or with these queues or a pattern for them in it"
    return [*stuck, doubtful("queues", f"no worker takes from {listed(forgotten)}", advice)]


def _types(redis: Redis) -> Finding:
    types = TaskTypes(redis)
    types.refresh()
    names = types.names()
    if not names:
        return doubtful("task types", "none is registered: every submission is rejected", "start a worker")
    gone = [name for name in names if (offer := types.find(name)) and not offer.live]
    if gone:
        advice = "start one whose TASK_MODULES include their modules"
        return doubtful("task types", f"no live worker has {listed(gone)}", advice)
    return fine("task types", f"{len(names)} registered")


def check_capacity(now: Observation) -> Finding:
    """Returns whether a task submitted now is likely to start soon."""
    workers = now.workers
    serial, slots = sum(each.serial_slots for each in workers), sum(each.slots for each in workers)
    active = sum(each.active for each in workers)
    is_full = 0 < slots <= active
    if not (is_full or 0 < serial <= sum(each.serial_active for each in workers)):
        return fine("capacity", f"{active} tasks run on {capacity(workers)}")
    shortest = min(
        (run.seconds for each in workers for run in each.running if is_full or not run.concurrent), default=0
    )
    waited = max((now.seconds_since(each.oldest_ready_at) for each in now.queues if each.paused is None), default=0)
    seen = f"all of {capacity(workers) if is_full else f'{serial:,} processes'} are in use"
    if max(waited, shortest) < BUSY:
        return fine("capacity", seen)
    if shortest >= BUSY:
        seen += f", each with one task for {shortest:.0f} s or longer"
    if waited >= BUSY:
        seen += f", and a task has been waiting for one for {waited:.0f} s"
    return doubtful("capacity", seen, "start more workers, or raise WORKER_EXECUTORS if processors are idle")


def check_waiting(found: Sequence[Waiting]) -> Finding:
    """Returns why pending tasks wait; a warning when some wait until a person acts."""
    total = sum(each.count for each in found)
    if not total:
        return fine("waiting", "no task waits for a worker")
    seen = f"of {total} pending tasks: {', '.join(f'{each.count} {each.text}' for each in found[:5])}"
    blocked = [each for each in found if each.reason.blocks]
    if not blocked:
        return fine("waiting", seen)
    return doubtful("waiting", seen, "; ".join(each.advice for each in blocked[:3]))


def _refused(scripts: Scripts) -> Iterator[Finding]:
    """Yields a warning for dead letters whose data no live version of their type accepts."""
    groups, _ = FailureGroups(scripts).page(0, LOOKED_AT)
    found = [each for each in groups if each.error == "InvalidData"]
    if found:
        seen = ", ".join(f"{each.count} of {each.type} ({each.message})" for each in found[:5])
        advice = "change their data, or start a worker with the version that they are for; then: firmq dlq retry"
        yield doubtful("refused data", f"dead letters: {seen}", advice)


def check_housekeeping(now: Observation) -> list[Finding]:
    """Returns whether due tasks and ended leases are processed in time."""
    if late := judged(now, "housekeeping"):
        return late
    live = [name for name, silent in now.silences.items() if silent < LIVE and name != RELAY]
    alone = [name.removesuffix(WITHOUT_LOCKS) for name in live if name.endswith(WITHOUT_LOCKS)]
    if alone and len(live) > 1:
        seen = (
            f"{len(live)} housekeepers run, {len(alone)} without locks ({', '.join(alone)}): each of them runs all jobs"
        )
        advice = "start them with HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED=true, the default"
        return [doubtful("housekeeping", seen, advice)]
    owners = sorted({lock.owner for lock in now.locks if lock.owner})
    return [fine("housekeeping", f"nothing is overdue{'; locks are held by ' + ', '.join(owners) if owners else ''}")]


def check_relay(now: Observation) -> list[Finding]:
    """Returns whether a relay of an outbox runs; nothing where none has for a week."""
    silent = now.silences.get(RELAY)
    if silent is None:
        return []
    if silent < LIVE:
        return [fine("relay", "it reports that it runs")]
    advice = "start it: firmq outbox, or with Django: manage.py firmq_outbox"
    return [doubtful("relay", f"none has reported for {silent:.0f} s: rows of the outbox wait", advice)]
