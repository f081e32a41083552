"""Everything counted again from the records alone, and every key held against the map of the product."""

from __future__ import annotations

import fnmatch
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis import Redis

from firmq.shared.domain.task import RQ_STATUS, TaskState
from firmq.shared.redis.client import text
from tests.integration.model.recount import indexes
from tests.integration.model.reference import Task
from tests.labs.faults import kinds
from tests.support.keys import keys

ENDED = {str(state) for state in TaskState if state.ended}
FIELDS = ("state", "status", "origin", "description", "batch", "token", "unique")

STAYS = (
    keys.rq_job("*"), keys.rq_results("*"), keys.RQ_QUEUES, keys.QUEUES, keys.RQ_WORKERS, keys.rq_workers("*"),
    keys.rq_finished("*"), keys.rq_failed("*"), keys.rq_canceled("*"), keys.FORMAT, keys.TASKS, keys.tasks_of_type("*"),
    *(keys.ended(state) for state in ENDED), keys.FAILURE_GROUPS, keys.failure_group("*"), keys.FAILURE_GROUP_OF,
    keys.LIMITS,
    keys.LIMITS_DECLARED, keys.batch("*"), keys.batch_items("*"), keys.BATCHES,
    keys.OPEN_BATCHES, keys.EMPTY_BATCHES, keys.WAKEUP, keys.PARKED_CLAIMS,
    keys.WORKERS, keys.LOST_WORKERS, keys.REASSIGNED, keys.PRESENCE, keys.LOST_LOCKS, keys.ADOPTED_LANES,
    keys.RECOVERY_CURSOR, keys.REAPER, keys.AUDIT, keys.DASHBOARD_SECRET, keys.LOCK_FENCES, keys.foreign("*"),
    keys.TYPE_SETS, keys.type_set("*"), keys.TYPE_VERSIONS, keys.TYPES_OF, keys.CONCURRENT_TYPES,
)  # fmt: skip
"""Keys that may be there without an end when everything is at rest."""
PASSES = (
    keys.rq_worker("*"), keys.worker("*"), keys.claim("*"), keys.dispatched("*"), keys.parked_claim("*"),
    keys.control("*"), keys.throughput(0)[:-1] + "*", keys.idempotency("*"), keys.lock("*"), keys.unique_for("*"),
    keys.version_ends(0)[:-1] + "*", keys.bucket("*"), keys.first_seen("*"),
    keys.SUBMISSION_CHECK, keys.dashboard_session("*"),
)  # fmt: skip
"""Keys that Redis removes by itself."""


@dataclass
class Recount:
    """What the records say, and what is wrong with everything else."""

    states: dict[str, str] = field(default_factory=dict)
    batches: dict[str, Counter[str]] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)


def recount(redis: Redis) -> Recount:
    """Looks at every key."""
    found = Recount()
    names = sorted(text(key) for key in redis.scan_iter(count=1000))
    ids = [name.removeprefix(keys.rq_job("")) for name in names if name.startswith(keys.rq_job(""))]
    records = _records(redis, [each for each in ids if not each.startswith(kinds.FOREIGN)])
    found.states = {task_id: record["state"] for task_id, record in records.items()}
    found.batches = defaultdict(Counter)
    for record in records.values():
        if record["batch"]:
            found.batches[record["batch"]][record["state"]] += 1
    found.complaints += _strange_keys(redis, names, set(ids))
    found.complaints += _damaged(records)
    found.complaints += _indexes(redis, records)
    found.complaints += _batches(redis, found.batches)
    return found


def _records(redis: Redis, ids: Sequence[str]) -> dict[str, dict[str, str]]:
    records: dict[str, dict[str, str]] = {}
    for first in range(0, len(ids), 500):
        chunk = ids[first : first + 500]
        with redis.pipeline(transaction=False) as pipeline:
            for each in chunk:
                pipeline.hmget(keys.rq_job(each), FIELDS)
            rows = pipeline.execute()
        for task_id, row in zip(chunk, rows, strict=True):
            records[task_id] = {name: text(value or b"") for name, value in zip(FIELDS, row, strict=True)}
    return records


def _strange_keys(redis: Redis, names: Sequence[str], ids: set[str]) -> Iterator[str]:
    passing = [name for name in names if _is_one_of(name, PASSES)]
    with redis.pipeline(transaction=False) as pipeline:
        for name in passing:
            pipeline.pttl(name)
        for name, life in zip(passing, pipeline.execute(), strict=True):
            if life == -1:
                yield f"key {name} should end by itself and has no end"
    for name in names:
        if not _is_one_of(name, STAYS) and not _is_one_of(name, PASSES):
            yield f"key {name} was left behind"
        elif name.startswith(keys.rq_results("")) and name.removeprefix(keys.rq_results("")) not in ids:
            yield f"key {name} is the result of no task"


def _is_one_of(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _damaged(records: dict[str, dict[str, str]]) -> Iterator[str]:
    for task_id, record in records.items():
        if record["state"] not in list(TaskState):
            yield f"task {task_id} is in state {record['state']!r}"
        elif record["status"] != RQ_STATUS[TaskState(record["state"])]:
            yield f"task {task_id} is {record['state']}, and {record['status']} for RQ"


def _indexes(redis: Redis, records: dict[str, dict[str, str]]) -> Iterator[str]:
    """Every index has exactly those that it should."""
    tasks = [
        Task(id=task_id, state=TaskState(each["state"]), queue=each["origin"], type=each["description"])
        for task_id, each in records.items()
        if each["state"] in list(TaskState)
    ]
    wanted = indexes(tasks, kinds.QUEUES)
    for name, members in wanted.items():
        yield from _difference(name, {text(member) for member in redis.zrange(name, 0, -1)}, members)
    dead = wanted[keys.ended("failed")]
    yield from _difference(keys.FAILURE_GROUP_OF, {text(member) for member in redis.hkeys(keys.FAILURE_GROUP_OF)}, dead)
    causes: Any = redis.zrange(keys.FAILURE_GROUPS, 0, -1, withscores=True)
    by_cause = {text(cause): int(count) for cause, count in causes}
    counted = {cause: int(redis.zcard(keys.failure_group(cause))) for cause in by_cause}
    if by_cause != counted or sum(counted.values()) != len(dead):
        yield f"causes count {by_cause}, their dead letters are {counted}, all dead letters {len(dead)}"


def _difference(name: str, there: set[str], wanted: set[str]) -> Iterator[str]:
    if more := there - wanted:
        yield f"{name} has {len(more)} that it should not have, such as {min(more)}"
    if missing := wanted - there:
        yield f"{name} lacks {len(missing)}, such as {min(missing)}"


def _batches(redis: Redis, wanted: dict[str, Counter[str]]) -> Iterator[str]:
    for name in map(text, redis.zrange(keys.BATCHES, 0, -1)):
        stored = {text(field): text(value) for field, value in redis.hgetall(keys.batch(name)).items()}
        counts = {state: int(stored.get(state, 0)) for state in map(str, TaskState)}
        true = wanted.get(name, Counter())
        if removed := int(stored.get("removed", 0)):
            # Nobody knows any more how these had ended.
            if true.total() + removed != sum(counts.values()):
                yield f"batch {name} counts {dict(+Counter(counts))}, {removed} removed, its tasks are {dict(true)}"
            continue
        if Counter(counts) != true:
            yield f"batch {name} counts {dict(+Counter(counts))}, its tasks are {dict(true)}"
        ended = sum(count for state, count in true.items() if state in ENDED)
        if (int(stored.get("total", 0)), int(stored.get("ended", 0))) != (true.total(), ended):
            yield f"batch {name} has {stored.get('total')} tasks, {stored.get('ended')} ended; found {true.total()}"
