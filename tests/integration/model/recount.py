"""What is really in Redis, read key by key in one step, and held against the model: a full recount."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from redis import Redis

from firmq.shared.domain.task import RQ_STATUS, WAITING, TaskState
from tests.integration.model.reference import Model, Task
from tests.support.keys import keys

S = TaskState
CONFIGURED = ("high",)
QUEUES = (*CONFIGURED, "normal", "gpu.0")
MOST_QUEUES = 2
LANES = tuple(lane for queue in QUEUES for lane in (queue, f"{queue}+"))
_EVERYTHING = """
local readers = {
  hash = function(key) return redis.call('HGETALL', key) end,
  zset = function(key) return redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end,
  list = function(key) return redis.call('LRANGE', key, 0, -1) end,
  set = function(key) return redis.call('SMEMBERS', key) end,
  string = function(key) return {redis.call('GET', key)} end,
  stream = function(key) return {redis.call('XLEN', key)} end,
}
local found = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', key).ok
  found[#found + 1] = {key, kind, readers[kind](key)}
end
return found
"""
_SHAPES: Mapping[str, Callable[[list[Any]], Any]] = {
    "hash": lambda flat: dict(zip(flat[::2], flat[1::2], strict=True)),
    "zset": lambda flat: {member: float(score) for member, score in zip(flat[::2], flat[1::2], strict=True)},
    "set": set,
}
_PLACES: Mapping[S, Sequence[Callable[[str], str]]] = {
    S.SCHEDULED: (keys.scheduled, keys.rq_scheduled),
    S.RETRYING: (keys.retrying, keys.rq_scheduled),
    S.BLOCKED: (lambda _: keys.BLOCKED, keys.rq_deferred),
    S.PENDING: (keys.pending,),
    S.RUNNING: (lambda _: keys.LEASES,),
    S.COMPLETED: (lambda _: keys.ended(S.COMPLETED), keys.rq_finished),
    S.FAILED: (lambda _: keys.ended(S.FAILED), keys.rq_failed),
    S.CANCELLED: (lambda _: keys.ended(S.CANCELLED), keys.rq_canceled),
    S.EXPIRED: (lambda _: keys.ended(S.EXPIRED), keys.rq_canceled),
}
"""The indexes in which a task of a queue stands with its id: ours, then RQ's, who has a list for those pending."""
_ASIDE = (keys.throttled, keys.rq_deferred)
PASSING = re.compile(
    re.escape(keys.prefix) + r"(firmq:(wakeup(:.+)?|claim:.+|throughput:\d+|control:.+|recovery|parked-claims|"
    r"parked-claim:.+|format)|rq:queues)"
)
"""Keys that belong to no task: rings, what the last claim took, counts of a minute, orders to workers."""


class Store:
    """One look at everything."""

    def __init__(self, redis: Redis) -> None:
        self.found: dict[str, Any] = {}
        for key, kind, flat in redis.eval(_EVERYTHING, 0):
            values = [part.decode() if isinstance(part, bytes) else part for part in flat]
            self.found[key.decode()] = _SHAPES.get(kind.decode(), list)(values)

    def members(self, key: str) -> set[str]:
        return set(self.found.get(key, ()))

    def record(self, task_id: str) -> dict[str, str]:
        return dict(self.found.get(keys.rq_job(task_id), {}))

    def tickets(self, lane: str) -> list[str]:
        """The ids that lead to tasks, in their order, each once."""
        return list(dict.fromkeys(self.found.get(keys.rq_queue(lane), [])))

    def throttled(self, queue: str) -> set[str]:
        return self.members(keys.throttled(queue))

    def without_passing(self) -> dict[str, Any]:
        return {key: value for key, value in self.found.items() if not PASSING.fullmatch(key)}


def check(store: Store, model: Model, lost_tickets: set[str]) -> None:
    """Every task in its one state and place, every count what a recount gives, and no key that nobody owns."""
    assert {key for key in store.found if key.startswith(keys.rq_job(""))} == set(map(keys.rq_job, model.tasks))
    for task in model.tasks.values():
        _check_record(store.record(task.id), task, task.id in store.throttled(task.queue))
    _check_indexes(store, model)
    for queue in QUEUES:
        _check_queue(store, model, queue, lost_tickets)
    _check_register(store, model)
    _check_limits(store, model)
    _check_batches(store, model)
    _check_causes(store, model)
    _check_counts(store, model)
    _check_owners(store, model)


def _check_record(record: dict[str, str], task: Task, throttled: bool) -> None:
    assert record["state"] == task.state, (task, record)
    assert record["status"] == ("deferred" if throttled else RQ_STATUS[task.state]), (task, record)
    assert record["origin"] == task.queue
    numbers = {name: int(record.get(name, 0)) for name in ("attempt", "failures", "crashes", "losses", "suspicions")}
    assert numbers == {name: getattr(task, name) for name in numbers}, (task, record)
    assert record.get("token", "") == task.token, (task, record)
    if task.state is S.RUNNING:
        assert (record.get("begun") == task.token) == task.begun, (task, record)
        assert bool(record.get("cancel")) == task.wish, (task, record)
    steps = {name[5:]: json.loads(value)["kind"] for name, value in record.items() if name.startswith("step:")}
    assert steps == task.steps, (task, record)
    assert int(record.get("steps", "0 0").split()[0]) == len(steps)
    assert record.get("awaits", "") == task.awaits, (task, record)
    own = [each[0] for each in json.loads(record.get("parents", "[]"))]
    assert own == list(task.parents), (task, record)
    attempts = {int(name[8:]) for name in record if name.startswith("attempt:")}
    assert attempts == {number for number in task.history if number > max(task.history) - 50}
    for name in attempts:
        json.loads(record[f"attempt:{name}"])


def _ids(tasks: Iterable[Task]) -> set[str]:
    return {task.id for task in tasks}


def indexes(tasks: Iterable[Task], queues: Iterable[str], throttled: Collection[str] = ()) -> dict[str, set[str]]:
    """Every index of ours and of RQ's, the empty ones too, with exactly the members that it should have.

    Tasks that stand `throttled` are pending and wait for a limit or for the turn of their tenant.
    """
    known = {place(queue) for places in (_ASIDE, *_PLACES.values()) for place in places for queue in queues}
    known |= {keys.TASKS, keys.DEADLINES, *map(keys.rq_started, queues)}
    found = defaultdict[str, set[str]](set, {key: set() for key in known})
    for task in tasks:
        for key in (keys.TASKS, keys.tasks_of_type(task.type), *map(keys.tasks_with_tag, task.tags)):
            found[key].add(task.id)
        for place in _ASIDE if task.id in throttled else _PLACES[task.state]:
            found[place(task.queue)].add(task.id)
        if task.state is S.RUNNING:
            found[keys.rq_started(task.queue)].add(f"{task.id}:{task.token}")
        if task.state in WAITING and task.expires is not None:
            found[keys.DEADLINES].add(task.id)
    return found


_AWAITING = (keys.AWAITING, keys.awaiting("go"))


def _check_indexes(store: Store, model: Model) -> None:
    waiting = {each.id for each in model.tasks.values() if each.state is S.SCHEDULED and each.awaits == "signal go"}
    assert [store.members(key) for key in _AWAITING] == [waiting, waiting]
    throttled = {each for queue in QUEUES for each in store.throttled(queue)}
    for key, expected in indexes(model.tasks.values(), QUEUES, throttled).items():
        assert store.members(key) == expected, key
    assert store.found.get(keys.LEASES, {}) == {task.id: task.lease for task in model.of(S.RUNNING)}
    assert store.found.get(keys.UNIQUE, {}) == model.unique


def _check_queue(store: Store, model: Model, queue: str, lost_tickets: set[str]) -> None:
    pending, throttled = [task for task in model.of(S.PENDING) if task.queue == queue], store.throttled(queue)
    assert throttled <= {each.id for each in pending if each.limit}, "only who waits for a limit stands aside"
    for lane in (queue, f"{queue}+"):
        here = _ids(task for task in pending if task.lane == lane)
        assert here - throttled <= set(store.tickets(lane)) | lost_tickets, "a task without a ticket in its lane"


def _check_register(store: Store, model: Model) -> None:
    in_use = {task.queue for task in model.of(S.PENDING, S.SCHEDULED, S.RETRYING)}
    assert in_use <= store.members(keys.QUEUES), "tasks in a queue that no part knows"


def _check_limits(store: Store, model: Model) -> None:
    for limit in {task.limit for task in model.tasks.values() if task.limit} | set(model.limits):
        running = model.running_under(limit) if limit in model.limits else set()
        assert store.members(keys.slots(f"key:{limit}")) == running, "who runs has its slot, and nobody else"
    for queue in QUEUES:
        standing: Counter[str] = Counter()
        for key, members in store.found.items():
            if not key.startswith((keys.wait_queue(f"{queue}|"), keys.wait_queue(f"{queue}+|"))):
                continue
            lane, group, tenant = key.removeprefix(keys.wait_queue("")).split("|")
            inside = [each for each in members if each in store.throttled(queue)]
            strayed = [each for each in inside if model.tasks[each].lane != lane]
            assert not strayed, f"throttled in lane {lane}, not in their own"
            standing.update(inside)
            if inside:
                assert tenant in store.members(keys.wait_queues(f"{lane}|{group}")), "nobody comes to this line"
                assert group in store.members(keys.LIMITS_DUE), "nobody looks at this limit"
        assert set(standing) == store.throttled(queue)
        assert set(standing.values()) <= {1}, "a task in two lines"


def _check_batches(store: Store, model: Model) -> None:
    assert store.members(keys.BATCHES) == set(model.batches)
    for batch in model.batches.values():
        record = store.found[keys.batch(batch.id)]
        counts = {state.value: int(record.get(state, 0)) for state in S}
        states = Counter(batch.states.values())
        assert counts == {state.value: states[state] for state in S}, (batch, record)
        assert int(record["total"]) == len(batch.states)
        assert int(record.get("ended", 0)) == batch.ended
        assert int(record.get("removed", 0)) == batch.removed
        assert ("closed" in record) == batch.closed
        assert ("done_at" in record) == batch.done
        assert ("stopped" in record) == batch.stopped
        assert record.get("work") == batch.work
        assert store.members(keys.batch_items(batch.id)) == set(batch.states)
        assert store.members(keys.batch_wait_queue(batch.id)) == set(batch.line)
        assert batch.max_running is None or batch.count(S.PENDING, S.RUNNING) <= batch.max_running
        assert not batch.line or batch.full, "there is room, and somebody waits for it"


def _check_causes(store: Store, model: Model) -> None:
    dead = _ids(model.of(S.FAILED))
    filed = store.found.get(keys.FAILURE_GROUP_OF, {})
    assert set(filed) == dead
    sizes = Counter(filed.values())
    assert store.found.get(keys.FAILURE_GROUPS, {}) == sizes
    for cause in sizes:
        dead_letters = store.found.get(keys.failure_group(cause), {})
        assert set(dead_letters) == {each for each, its in filed.items() if its == cause}
        assert int(store.found[keys.first_seen(cause)][0]) <= min(dead_letters.values())


def _check_counts(store: Store, model: Model) -> None:
    counted: Counter[str] = Counter()
    for key, values in store.found.items():
        if key.startswith(f"{keys.prefix}firmq:throughput:"):
            counted.update({name: int(value) for name, value in values.items()})
    assert counted == model.counts
    assert set(store.found.get(keys.DEFERRED_WORK, {})) == set(model.owed)


def _check_owners(store: Store, model: Model) -> None:
    """No key is left of a task that is gone."""
    owned = {
        keys.TASKS,
        keys.BLOCKED,
        keys.LEASES,
        keys.DEADLINES,
        keys.UNIQUE,
        keys.FAILURE_GROUPS,
        keys.FAILURE_GROUP_OF,
        keys.DEFERRED_WORK,
        keys.CONCURRENT_TYPES,
        keys.QUEUES,
        *_AWAITING,
    }
    owned |= {keys.LIMITS, keys.LIMITS_DUE, keys.BATCHES, keys.OPEN_BATCHES, keys.EMPTY_BATCHES}
    owned |= {keys.ended(state) for state in S if state.ended}
    owned |= set(map(keys.rq_queue, LANES))
    per_queue = (keys.pending, keys.scheduled, keys.retrying, keys.throttled, keys.rq_started)
    registries = (keys.rq_scheduled, keys.rq_deferred, keys.rq_finished, keys.rq_failed, keys.rq_canceled)
    owned |= {key(queue) for queue in QUEUES for key in (*per_queue, *registries)}
    for task in model.tasks.values():
        owned |= {keys.rq_job(task.id), keys.rq_results(task.id), keys.tasks_of_type(task.type)}
        owned |= {keys.tasks_with_tag(tag) for tag in task.tags}
    owned |= {keys.children(each) for each, about in model.children.items() if about}
    for batch_id in model.batches:
        owned |= {keys.batch(batch_id), keys.batch_items(batch_id), keys.batch_wait_queue(batch_id)}
    owned |= {keys.failure_group(each) for each in store.found.get(keys.FAILURE_GROUPS, {})}
    owned |= {keys.slots(f"key:{limit}") for limit in model.limits}
    lines = tuple(key(f"{lane}|") for key in (keys.wait_queue, keys.wait_queues) for lane in LANES)
    owned |= set(map(keys.last_turn, LANES))
    outlives = keys.first_seen("")  # its last dead letter, by 30 days
    left = {key for key in store.without_passing() if key not in owned and not key.startswith((*lines, outlives))}
    assert not left, f"keys that nobody owns: {left}"
