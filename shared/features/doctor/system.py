"""Checks workers, task types, capacity and housekeeping from their records in Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redis.exceptions import ResponseError

from firmq.shared.conditions.findings import Finding, Level, doubtful, fine, judged, judged_or_fine, listed, wrong
from firmq.shared.conditions.observation import Observer
from firmq.shared.redis import schema_version
from firmq.shared.redis.client import keys_of, raw, text
from firmq.shared.redis.scripts import Scripts
from firmq.shared.registry import added
from firmq.shared.stores.failure_groups import FailureGroups
from firmq.shared.stores.presence import RELAY
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
        *judged_or_fine(now, "quarantine", "no key held a value of the wrong type in the last week"),
        _foreign(now.queues),
        *_workers(now, scripts.keys),
        check_waiting(explain_waiting(scripts, now.queues, now.workers)),
        *_refused(scripts),
        _types(redis),
        *judged_or_fine(now, "housekeeping", _housekeeping(now)),
        *(judged_or_fine(now, "relay", "it reports that it runs") if RELAY in now.silences else []),
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
    seen = f"{len(workers)} alive with {capacity(workers)}"
    found = judged_or_fine(now, "workers", seen) + (judged(now, "queues") or _unserved(now))
    if not workers:
        return found
    active = sum(each.active for each in workers)
    return [*found, *judged_or_fine(now, "capacity", f"{active} tasks run on {capacity(workers)}")]


def _unserved(now: Observation) -> list[Finding]:
    """Returns a warning before tasks wait in a queue that no worker serves."""
    forgotten = [each.name for each in now.queues if not any(worker.takes(each.name) for worker in now.workers)]
    if not forgotten or not now.workers:
        return []
    advice = "start one without WORKER_QUEUES, or with these queues or a pattern for them in it"
    return [doubtful("queues", f"no worker takes from {listed(forgotten)}", advice)]


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


def _housekeeping(now: Observation) -> str:
    owners = sorted({lock.owner for lock in now.locks if lock.owner})
    return f"nothing is overdue{'; locks are held by ' + ', '.join(owners) if owners else ''}"
