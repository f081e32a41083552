"""The model is worth what it notices: each of these slips, put into a script, makes it fall.

Too long for every day: TEST_LONG=1 runs them. That each has its place in the scripts is seen every day.
"""

# ruff: noqa: E501  # a slip is easier to see on one line

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from redis import Redis
from redis.exceptions import ResponseError

from firmq.shared.redis import linker, scripts
from tests.integration.model.test_life import Life, chosen
from tests.support.features import rows
from tests.support.planting import plant


@dataclass(frozen=True)
class Bug:
    """A slip: in this file this text is that one instead."""

    file: str
    old: str
    new: str = ""


BUGS = {
    "a report is taken from who lost the lease": Bug("report", "holder ~= ended.token", "not holder"),
    "a lease is extended for who lost it": Bug("extend", "not t or t.token ~= token or", "not t or"),
    "who lost the lease gives the task back": Bug("release", "t.token ~= token or", "false or"),
    "a lost attempt keeps its token": Bug("reap", "redis.call('HSET', keys.rq_job(id), 'token', '')"),
    "a report leaves the lease": Bug("report", "if #leases > 0 then redis.call('ZREM', keys.LEASES, unpack(leases)) end"),
    "a wish to cancel is forgotten": Bug("report", "cancel and OVERRULED[state]", "false"),
    "an interrupted task never expires": Bug(
        "report",
        "remember(id, t.attempt, ended.record)\n  watch_deadline(id, t.expires_at)\nend\n\n-- Part",
        "remember(id, t.attempt, ended.record)\nend\n\n-- Part",
    ),
    "a task that is left stays in its index": Bug("_prelude", "redis.call('ZREM', index_key(state, queue), id)", "1"),
    "a dead letter that is gone counts for its cause": Bug("_prelude", "if state == 'failed' then leave_failure_group(id) end"),
    "an ended task keeps its unique key": Bug(
        "_prelude", "  release_unique(id, t.unique)\n  if state == 'failed'", "  if state == 'failed'"
    ),
    "a unique key is taken back from another": Bug("_prelude", "redis.call('HSETNX', keys.UNIQUE", "redis.call('HSET', keys.UNIQUE"),
    "a tag outlives its task": Bug("_prelude", "redis.call('ZREM', keys.tasks_with_tag(tag), id)", "local _ = tag"),
    "a started task is still watched for its expiry": Bug("claim", "if t[EXPIRES_AT] then redis.call('ZREM', keys.DEADLINES, id) end"),
    "a started task has no lease": Bug("claim", "if #leases > 0 then redis.call('ZADD', keys.LEASES, unpack(leases)) end"),
    "a started task stays pending": Bug(
        "claim", "if #gone > 0 then redis.call('ZREM', keys.pending(queue_of_lane[lane]), unpack(gone)) end"
    ),
    "what is too old is started": Bug(
        "claim",
        "if t[EXPIRES_AT] and (number_of(t[EXPIRES_AT]) or math.huge) <= now then return expire(id, queue, t[RELATIONS]) end\n",
        "",
    ),
    "a claim leaves out the queues that it does not name": Bug("claim", "if patterns ~= '' and #tasks < want and", "if false and"),
    "a queue is removed under its tasks": Bug("queues_prune", "if is_used(queue) or", "if false and is_used(queue) or"),
    "there are as many queues as anyone wants": Bug("_prelude", "redis.call('ZCARD', keys.QUEUES) >= most", "false"),
    "a stopped batch goes on": Bug("claim", "return not why", "return true"),
    "a claim sent again takes more": Bug("claim", "last and string.sub(last, 1, #token) == token", "false"),
    "the newest goes first": Bug(
        "claim",
        "    local ids = redis.call('LRANGE', list, 0, (stale > 0 and 200 or n - got) - 1)\n",
        "    local ids = redis.call('LRANGE', list, -(stale > 0 and 200 or n - got), -1)\n"
        "    redis.call('LTRIM', list, 0, -#ids - 1)\n"
        "    if #ids > 0 then redis.call('LPUSH', list, unpack(ids)) end\n",
    ),
    "a limit stops nobody": Bug("_limits", "if not lets_start(limit_of(name)) then return name end"),
    "who ends keeps its slot": Bug("report", "if limited then free_slots(id) end"),
    "who is reaped keeps its slot": Bug("reap", "if limited then free_slots(id) end"),
    "a freed slot calls nobody": Bug("_limits", " and redis.call('ZADD', keys.LIMITS_DUE, 'XX', 'CH', NOW, name) == 1 then", " and false then"),
    "a due task stays in RQ's registry": Bug("promote", "redis.call('ZREM', keys.rq_scheduled(queue), unpack(ids))"),
    "a due task ignores the limit of its batch": Bug("promote", "relations and held_back(id, state, queue, 0)", "false"),
    "what runs expires": Bug("expire", "WAITING[t.state]", "t.state"),
    "an attempt that never began is spent": Bug("release", "bump(id, 'attempt', number_of(t.attempt) or 1, -1)"),
    "a killer lives once more": Bug("reap", "crashes >= max_crashes", "crashes > max_crashes"),
    "a result goes while somebody waits for it": Bug("prune", "state == 'completed' and needed(id)", "false"),
    "anything can be purged": Bug("_undo", "(state == wanted or not t or not t.state)", "true"),
    "a lost ticket is not put back": Bug("recover", "restore_entries(queue, lost)"),
    "a full queue takes more": Bug("submit_one", "if limit > 0 and", "if false and"),
    "a dead letter keeps its failures": Bug("_relations", "redis.call('HDEL', keys.rq_job(id), 'failures',", "redis.call('HDEL', keys.rq_job(id), 'nothing',"),
    "a child waits for success although any end would do": Bug("_relations", "or on == 'end' or", "or"),
    "a child is kept on the list that it left": Bug("_relations", "if keeps(t.state) then redis.call('ZADD', key, 'XX', 0, id) else redis.call('ZREM', key, id) end", "redis.call('ZADD', key, 0, id)"),
    "children of what was removed wait for ever": Bug("_relations", "redis.call('EXISTS', keys.children(id)) == 1 then defer", "false then defer"),
    "a batch counts a retried task as ended": Bug("_relations", "redis.call('HINCRBY', key, 'ended', -1)"),
    "a batch that is through is not done": Bug("_relations", "if b.closed and ended >= (number_of(b.total) or 0) then finish_batch(batch) end"),
    "room in a batch is left empty": Bug("_relations", "if b.max_running and SLOT[from] and not SLOT[to] then start_waiting(batch) end"),
    "a submitted task waits in the lane of another kind": Bug("submit_one", "lane_for(queue, task_type)", "queue"),
    "a submitted child waits in the lane of another kind": Bug("submit", "lanes[place] or lane_for(queue, task_type)", "queue"),
    "a returned task waits in the lane of another kind": Bug("_prelude", "lane_for(queue, t.description or '')", "queue"),
    "a due task waits in the lane of another kind": Bug("promote", "lane_for(queue, task_type or '')", "queue"),
    "a restored entry is in the lane of another kind": Bug("_restore", "lane_of_type[task_type] or lane_for(queue, task_type)", "queue"),
    "recovery overlooks a lane": Bug("recover", "local lists, pend = {keys.rq_queue(queue), keys.rq_queue(queue .. '+')}", "local lists, pend = {keys.rq_queue(queue)}"),
    "a throttled task changes its lane": Bug("claim", "  enter_wait_queue(id, lane, group, tenant, enqueued, t[SCORE])\n", "  enter_wait_queue(id, queue_of_lane[lane], group, tenant, enqueued, t[SCORE])\n"),
    "who ran beside a crash is not known to have": Bug("report", "if ended.suspicions then redis.call('HSET', keys.rq_job(id), 'suspicions', ended.suspicions) end"),
    "a child that was cancelled at birth is not counted": Bug("submit", "count(state, 1)"),
    "a step is taken from who lost the lease": Bug("step_save", "t.token ~= token or", "false or"),
    "a step is stored again": Bug("step_save", "if before and not replaces then return {'found', before, writes} end", ""),
    "a sleep is not over in the next attempt": Bug("step_load", "if over == 1 then", "if false then"),
    "a signal that came before the wait is not seen": Bug("report", """if not step or (kind == 'signal' and not string.find(step, '^{"kind":"wait"')) then""", "if not step then"),
    "a task does not wait for its children": Bug("report", "  return open > 0\nend", "  return false\nend"),
    "a task runs at the end of its first child": Bug("report", "'open_parents', open)", "'open_parents', 1)"),
    "a cancel does not reach children": Bug("_relations", "if t.spawned and to == 'cancelled' then cancel_children(id) end"),
    **{name: Bug(*about) for name, *about in rows("PLANTED")},
}  # fmt: skip


@pytest.fixture
def planted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    bug, texts = BUGS[request.param], dict(linker.sources())
    texts[bug.file] = plant(texts[bug.file], bug.old, bug.new)
    monkeypatch.setattr(linker, "sources", lambda: texts)
    _forget()
    yield
    monkeypatch.undo()
    _forget()


def _forget() -> None:
    linker.source.cache_clear()
    scripts.digest.cache_clear()


@pytest.mark.parametrize("name", BUGS)
def test_each_slip_has_its_place_in_a_script(name: str) -> None:
    bug = BUGS[name]
    assert plant(linker.sources()[bug.file], bug.old, bug.new)


@pytest.mark.skipif(not os.environ.get("TEST_LONG"), reason="it takes minutes: TEST_LONG=1")
@pytest.mark.parametrize("planted", BUGS, indirect=True)
@pytest.mark.usefixtures("planted")
def test_the_model_notices(redis_client: Redis) -> None:
    Life.redis = redis_client
    once = settings(chosen(800), phases=(Phase.generate,), derandomize=True)
    with pytest.raises((AssertionError, ResponseError, KeyError)):
        run_state_machine_as_test(Life, settings=once)
