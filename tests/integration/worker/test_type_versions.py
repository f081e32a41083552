"""Workers with different task types, or different versions of one: each task runs where it can, at no cost."""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

import pytest
from redis import Redis

from firmq.shared.domain.schedule import Schedule
from firmq.shared.domain.task import TaskDetail, TaskState
from firmq.shared.redis.client import text
from firmq.shared.stores import maintenance
from firmq.shared.stores.failure_groups import FailureGroups
from firmq.shared.stores.task_types import TaskType, TaskTypes, pack, types_waiting
from firmq.shared.stores.waiting import Reason, explain_waiting
from firmq.shared.stores.workers import WorkerInfo
from firmq.shared.submission.type_cache import TypeCache
from firmq.worker.housekeeping.main import refused_by_types
from tests.support.announcing import announce
from tests.support.attempt_ends import claiming, ended, report
from tests.support.figures import judge
from tests.support.harness import System, wait_until
from tests.support.keys import keys
from tests.support.limiting import submit
from tests.support.store import LEASE, Store

BEFORE, AFTER = "tests.support.versions.before", "tests.support.versions.after"
OLD, NEW = '{"order": 1}', '{"order": 1, "name": "x"}'


def details(system: System, ids: list[str]) -> list[TaskDetail]:
    return [system.ended(each) for each in ids]


# --- types that only some workers have ---


def test_each_task_runs_on_a_worker_that_has_its_type(system: System) -> None:
    for module in (BEFORE, AFTER, AFTER):
        system.start_worker(TASK_MODULES=module, WORKER_EXECUTORS="1")
    ids = system.submit_many([("going", OLD), ("coming", OLD), ("coming", OLD)] * 20)
    ended = details(system, ids)
    assert Counter(each.summary.state for each in ended) == {TaskState.COMPLETED: 60}
    assert {(each.summary.attempt, each.summary.failures, len(each.attempts)) for each in ended} == {(1, 0, 1)}
    assert {each.result[0] for each in ended} == {"going", "coming"}
    assert not system.redis.exists(keys.LIMITS_DUE, keys.throttled("normal")), "nothing is left of the lines"


def test_an_idle_worker_that_has_the_type_is_woken(system: System) -> None:
    for module in (BEFORE, BEFORE, AFTER):
        system.start_worker(TASK_MODULES=module, WORKER_EXECUTORS="1")
    waited: dict[int, list[float]] = {1: [], 2: []}
    for number in range(1, 41):
        # One goes straight to an idle worker; of two at once the second goes through the queue.
        many = 1 + number % 2
        wait_until(lambda: system.redis.zcard(keys.PARKED_CLAIMS) == 6, "both lanes of all are idle")
        began = time.monotonic()
        details(system, system.submit_many([("coming", OLD)] * many))
        waited[many].append(time.monotonic() - began)
    assert median(waited[2]) < 2 + 3 * median(waited[1]), "a worker that nobody wakes looks after four seconds"
    judge("until an idle worker with the type has run two tasks", max(waited[2]), 2)


def test_a_type_without_a_live_worker_waits_and_blocks_no_others(system: System) -> None:
    system.start_worker(TASK_MODULES=AFTER)
    waiting = system.submit_many([("going", OLD)] * 30)
    assert {each.summary.state for each in details(system, system.submit_many([("coming", OLD)] * 5))} == {"completed"}
    wait_until(lambda: system.redis.zcard(keys.throttled("normal")) == 30, "they stand aside")
    found = system.records.get(waiting[0])
    assert (found.summary.state, found.summary.attempt, found.throttled_by) == (TaskState.PENDING, 0, "worker")
    assert types_waiting(system.scripts)[0][:2] == ("going", 30)
    system.start_worker(TASK_MODULES=BEFORE)
    ended = details(system, waiting)
    assert {(each.summary.state, each.summary.attempt, each.throttled_by) for each in ended} == {("completed", 1, None)}
    assert types_waiting(system.scripts) == []


def test_a_set_that_redis_lost_is_published_again(system: System) -> None:
    system.start_worker(TASK_MODULES=AFTER)
    system.redis.delete(*system.redis.keys(f"{keys.prefix}firmq:types:*"))
    assert system.ended(system.submit("coming", OLD)).summary.state is TaskState.COMPLETED
    wait_until(lambda: "coming" in [each.name for each in TaskTypes(system.redis).all()], "it is there again")


# --- versions of one type ---


def test_a_task_runs_on_a_version_that_accepts_its_data(system: System) -> None:
    for module in (BEFORE, AFTER):
        system.start_worker(TASK_MODULES=module, WORKER_EXECUTORS="1")
    ids = system.submit_many([("ship", OLD), ("ship", NEW)] * 30)
    ended = details(system, ids)
    assert Counter(each.result[0] for each in ended) == {"before": 30, "after": 30}
    assert {(each.summary.attempt, each.summary.failures, len(each.attempts)) for each in ended} == {(1, 0, 1)}


def test_data_that_no_live_version_takes_is_a_dead_letter_with_every_reason(system: System) -> None:
    for module in (BEFORE, AFTER):
        system.start_worker(TASK_MODULES=module, WORKER_EXECUTORS="1")
    found = system.ended(system.submit("ship", '{"order": "much", "name": 1}'))
    assert found.summary.state is TaskState.FAILED
    assert found.summary.error is not None
    assert found.summary.error.type == "InvalidData"
    said = found.summary.error.message
    assert "order: Input should be a valid integer" in said
    assert "name: Input should be a valid string" in said, "as the other version says"
    assert "name: Extra inputs are not permitted" in said
    assert len(found.attempts) == 1


def test_a_dead_letter_that_is_retried_is_asked_of_all_versions_again(system: System) -> None:
    system.start_worker(TASK_MODULES=AFTER, WORKER_EXECUTORS="1")
    found = system.ended(system.submit("ship", OLD))
    assert found.summary.state is TaskState.FAILED
    system.start_worker(TASK_MODULES=BEFORE, WORKER_EXECUTORS="1")
    system.dead_letters.requeue(found.summary.id)
    assert system.ended(found.summary.id).result == ["before", 1]


@pytest.mark.parametrize("modules", [(BEFORE, AFTER), (AFTER, BEFORE)])
def test_a_type_that_is_concurrent_in_one_version_only_runs_on_both(system: System, modules: tuple[str, str]) -> None:
    for module in modules:
        system.start_worker(TASK_MODULES=module, WORKER_EXECUTORS="1")
    seen: set[str] = set()

    def ran_on_both() -> bool:
        """One worker may run all of them while the other's executors start."""
        ended = details(system, system.submit_many([("waits", OLD)] * 300))
        assert {(each.summary.attempt, each.summary.failures, len(each.attempts)) for each in ended} == {(1, 0, 1)}
        seen.update(each.result[0] for each in ended)
        return seen == {"before", "after"}

    wait_until(ran_on_both, "tasks ran on both", 120)


# --- step by step ---

_CLAIMS = itertools.count()
SHIP = {name: TaskType(name="ship", schema={}, description=name) for name in ("before", "after")}
VERSION = {name: each.version for name, each in SHIP.items()}


def claim(store: Store, worker: str) -> list[str]:
    store.clock.advance(timedelta(milliseconds=1))
    token = f"{worker}-{next(_CLAIMS)}"
    reply = store.scripts.call("claim", *claiming(worker, token, LEASE, 10, 1 << 20, "normal", 10))
    return [text(row[0]) for row in reply[3]]


def refuse(store: Store, task_id: str, version: str) -> int:
    token = text(store.redis.hget(keys.rq_job(task_id), "token"))
    error = json.dumps({"type": "InvalidData", "message": f"not for {version}"})
    return report(store.scripts, ended(task_id, token, "refused", error=error, version=version))[0]


def reap(store: Store) -> None:
    """As a housekeeper with the settings as shipped does each second."""
    maintenance.reap(store.scripts, 10, 3, lease_us=9_000_000, patience_us=3_000_000)


def test_a_refused_task_waits_as_if_it_had_not_been_claimed(store: Store) -> None:
    announce(store, "old", SHIP["before"])
    announce(store, "new", SHIP["after"])
    task = submit(store, "ship")[0]
    before = store.redis.hgetall(keys.rq_job(task))
    assert claim(store, "new") == [task]
    assert refuse(store, task, VERSION["after"]) == 3
    assert claim(store, "new") == [], "not again"
    after = store.redis.hgetall(keys.rq_job(task))
    assert after[b"state"] == b"pending"
    assert int(after[b"attempt"]) == 0
    assert {b"failures", b"error", b"attempt:1"} & after.keys() == set()
    assert before[b"enqueued_at"] == after[b"enqueued_at"]
    assert claim(store, "old") == [task]


def test_a_task_whose_last_taker_is_gone_fails_with_what_was_said(store: Store) -> None:
    announce(store, "old", SHIP["before"])
    announce(store, "new", SHIP["after"])
    [task] = submit(store, "ship")
    assert claim(store, "new") == [task]
    assert refuse(store, task, VERSION["after"]) == 3
    assert maintenance.refused(store.scripts, 10) == 0, "the other worker lives"
    store.clock.advance(timedelta(seconds=61))
    announce(store, "new", SHIP["after"])
    assert maintenance.refused(store.scripts, 10) == 1
    found = store.records.get(task).summary
    assert found.state is TaskState.FAILED
    assert found.error is not None
    assert f"not for {VERSION['after']}" in found.error.message
    assert maintenance.refused(store.scripts, 10) == 0


def test_the_reason_of_a_refusal_is_named_wherever_waiting_is(store: Store) -> None:
    announce(store, "old", SHIP["before"])
    announce(store, "new", SHIP["after"])
    tasks = submit(store, "ship", 3)
    submit(store, "unheard-of")
    assert claim(store, "new") == tasks
    for task in tasks:
        refuse(store, task, VERSION["after"])
    store.redis.zrem(keys.WORKERS, "old")
    about: dict[str, Any] = {"host": "h", "pid": 1, "version": "1", "executors": 1, "started_at": datetime.now(UTC)}
    workers = [WorkerInfo(name="new", queues=("normal",), **about)]
    found = {each.reason: each for each in explain_waiting(store.scripts, store.queues.overview(), workers)}
    assert found[Reason.DATA_REFUSED].count == 3
    assert (
        found[Reason.DATA_REFUSED].text
        == f"no live version of ship accepts their data (version {VERSION['after']}: not for {VERSION['after']})"
    )
    assert found[Reason.NO_HANDLER].name == "unheard-of"
    assert found[Reason.DATA_REFUSED].reason.blocks
    store.clock.advance(timedelta(seconds=61))
    announce(store, "new", SHIP["after"])
    assert maintenance.refused(store.scripts, 10) == 3
    [group], _ = FailureGroups(store.scripts).page(0, 10)
    assert (group.error, group.type, group.count) == ("InvalidData", "ship", 3)
    assert group.message.startswith("no live version of its type takes its data: version")


def test_a_schedule_whose_data_no_version_takes_is_named(store: Store) -> None:
    known = TaskType(name="ship", schema={"type": "object", "required": ["order"]})
    announce(store, "new", known)
    schedules = [
        Schedule(name="old", type="ship", queue="normal", interval=60, data="{}"),
        Schedule(name="new", type="ship", queue="normal", interval=60, data='{"order": 1}'),
        Schedule(name="later", type="not-there-yet", queue="normal", interval=60),
    ]
    [text_] = refused_by_types(schedules, TypeCache(TaskTypes(store.redis)))
    assert text_.startswith("schedule old: no version of ship accepts its data: ")
    assert "order" in text_


def test_an_outage_of_redis_makes_no_refusal_final(store: Store) -> None:
    """After it the worker that takes the data may be the last to be heard of again."""
    announce(store, "old", SHIP["before"])
    announce(store, "new", SHIP["after"])
    [task] = submit(store, "ship")
    reap(store)
    store.clock.advance(timedelta(minutes=5))
    announce(store, "new", SHIP["after"])
    assert claim(store, "new") == [task]
    assert refuse(store, task, VERSION["after"]) == 3, "before leases were looked for again"
    reap(store)
    assert maintenance.refused(store.scripts, 10) == 0, "while leases have another life"
    assert store.state(task) is TaskState.PENDING


PINNED = {name: TaskType(name="ship", schema={}, pinned_to=name) for name in ("1", "2")}


def pinned_task(store: Store) -> str:
    """Submits a task whose first attempt, on version 1, has stored a step and ended."""
    for name, each in PINNED.items():
        announce(store, name, each)
    [task] = submit(store, "ship")
    assert claim(store, "1") == [task]
    token = text(store.redis.hget(keys.rq_job(task), "token"))
    save = ("step_save", task, token, "a", '{"kind":"result","value":1}', 9, 999, PINNED["1"].version)
    assert store.scripts.call(*save)[0] == b"stored"
    report(store.scripts, ended(task, token, "interrupted", enqueued_us=store.clock.now_us), worker="1")
    assert store.records.get(task).pinned_to == PINNED["1"].version
    return task


def test_a_pinned_task_waits_for_its_version_as_long_as_that_lives(store: Store) -> None:
    task = pinned_task(store)
    for seconds in (0, 30, 29):
        store.clock.advance(timedelta(seconds=seconds))
        announce(store, "2", PINNED["2"])
        assert claim(store, "2") == []
        assert maintenance.refused(store.scripts, 10) == 0
        assert store.records.get(task).throttled_by == "worker"
    store.clock.advance(timedelta(seconds=2))
    announce(store, "2", PINNED["2"])
    assert maintenance.refused(store.scripts, 10) == 0
    assert claim(store, "2") == [task], "a minute after the last heartbeat of a worker with its version"


def test_a_pinned_task_is_run_by_its_version_also_after_a_retry(store: Store) -> None:
    task = pinned_task(store)
    assert claim(store, "2") == []
    assert claim(store, "1") == [task]
    token = text(store.redis.hget(keys.rq_job(task), "token"))
    error = json.dumps({"type": "ValueError", "message": "no"})
    report(store.scripts, ended(task, token, "failed", error=error), worker="1")
    assert store.scripts.call("requeue", "", "nonce", "", task)[0][:2] == [b"failed", 1]
    assert claim(store, "2") == []
    assert claim(store, "1") == [task]


def test_a_task_that_begins_anew_is_pinned_no_more(store: Store) -> None:
    task = pinned_task(store)
    assert claim(store, "1") == [task]
    token = text(store.redis.hget(keys.rq_job(task), "token"))
    assert store.scripts.call("steps_restart", task, token, "[]", 0)[0] == b"stored"
    assert store.records.get(task).pinned_to is None


def test_a_pinned_task_whose_data_is_refused_is_asked_of_other_versions(store: Store) -> None:
    task = pinned_task(store)
    assert claim(store, "1") == [task]
    assert refuse(store, task, PINNED["1"].version) == 3
    assert claim(store, "1") == []
    assert claim(store, "2") == [task]


def test_a_dead_letter_is_pinned_no_more(store: Store) -> None:
    task = pinned_task(store)
    store.clock.advance(timedelta(seconds=61))
    announce(store, "1", PINNED["1"])
    assert claim(store, "1") == [task]
    refuse(store, task, PINNED["1"].version)
    assert store.state(task) is TaskState.FAILED
    assert store.records.get(task).pinned_to is None


def test_the_version_that_stores_a_step_has_not_refused_the_task(store: Store) -> None:
    for name, each in PINNED.items():
        announce(store, name, each)
    [task] = submit(store, "ship")
    assert claim(store, "1") == [task]
    refuse(store, task, PINNED["1"].version)
    assert claim(store, "2") == [task]
    token = text(store.redis.hget(keys.rq_job(task), "token"))
    save = ("step_save", task, token, "a", '{"kind":"result","value":1}', 9, 999, PINNED["2"].version)
    assert store.scripts.call(*save)[0] == b"stored"
    assert store.redis.hmget(keys.rq_job(task), "pinned", "refused") == [PINNED["2"].version.encode(), None]


def test_a_task_whose_type_has_no_live_worker_at_all_is_never_failed_for_it(store: Store) -> None:
    announce(store, "new", SHIP["after"])
    announce(store, "old", SHIP["before"])
    [task] = submit(store, "ship")
    assert claim(store, "new") == [task]
    refuse(store, task, VERSION["after"])
    store.clock.advance(timedelta(days=3))
    assert maintenance.refused(store.scripts, 10) == 0
    announce(store, "other", TaskType(name="other", schema={}))
    assert maintenance.refused(store.scripts, 10) == 0
    assert claim(store, "other") == []
    assert store.state(task) is TaskState.PENDING


def test_a_waiting_task_whose_score_is_no_moment_stops_no_gauge(store: Store) -> None:
    announce(store, "new", SHIP["after"])
    [task] = submit(store, "ship")
    store.redis.zadd(keys.pending("normal"), {task: "inf"})
    announce(store, "other", TaskType(name="other", schema={}))
    assert claim(store, "other") == []
    store.clock.advance(timedelta(seconds=61))
    assert [(name, waiting) for name, waiting, _ in types_waiting(store.scripts)] == [("ship", 1)]


def test_a_name_that_no_type_can_have_is_a_corrupt_record(store: Store) -> None:
    announce(store, "new", SHIP["after"])
    [task] = submit(store, "ship")
    store.redis.hset(keys.rq_job(task), "description", "os.system('x')|#")
    assert claim(store, "new") == []
    found = store.records.get(task).summary
    assert found.state is TaskState.FAILED


def test_sets_are_forgotten_with_their_versions_and_come_back_whole(store: Store) -> None:
    announce(store, "old", SHIP["before"], TaskType(name="same", schema={}))
    store.clock.advance(timedelta(days=8))
    announce(store, "new", SHIP["after"], TaskType(name="same", schema={}))
    week = int(timedelta(days=7).total_seconds() * 1_000_000)
    assert maintenance.types_prune(store.scripts, week, 200) == 2
    assert maintenance.types_prune(store.scripts, week, 200) == 0
    versions = {text(each) for each in store.redis.hkeys(keys.TYPE_VERSIONS)}
    assert VERSION["before"] not in versions
    assert {VERSION["after"], TaskType(name="same", schema={}).version} == versions
    assert [text(each) for each in store.redis.zrange(keys.TYPE_SETS, 0, -1)] == [
        pack([SHIP["after"], TaskType(name="same", schema={})]).digest
    ]
    announce(store, "old", SHIP["before"], TaskType(name="same", schema={}))
    assert VERSION["before"] in {text(each) for each in store.redis.hkeys(keys.TYPE_VERSIONS)}


def test_a_thousand_unserved_groups_hide_no_served_one(store: Store) -> None:
    """A claim looks at so many lines only; those that it looked past come last the next time."""
    announce(store, "none", TaskType(name="none", schema={}))
    for number in range(1200):
        submit(store, f"gone-{number}")
    [ours] = submit(store, "ship")
    for _ in range(40):
        claim(store, "none")
    assert store.redis.zcard(keys.throttled("normal")) == 1201
    announce(store, "old", SHIP["before"])
    for _ in range(5):
        if claim(store, "old") == [ours]:
            break
    else:
        pytest.fail("it was not found")


def test_readers_are_sent_only_what_they_lack(redis_client: Redis) -> None:
    types = TaskTypes(redis_client)
    types.publish([TaskType(name=f"type-{number}", schema={"title": "x" * 500}) for number in range(200)])
    reader = TaskTypes(redis_client)
    reader.refresh()
    assert reader.newest("type-7") is not None

    def sent() -> int:
        return int(redis_client.info("stats")["total_net_output_bytes"])

    before = sent()
    for _ in range(10):
        reader.refresh()
        assert reader.newest("type-7") is not None
    assert sent() - before < 20_000


def test_worker_info_has_no_new_fields() -> None:
    """A gateway of an earlier version reads the record of a worker of this one, and takes no fields that it lacks."""
    assert "types" not in WorkerInfo.__dataclass_fields__


def test_an_idle_worker_with_many_types_sends_next_to_nothing(system: System) -> None:
    system.start_worker(TASK_MODULES="tests.support.many_types", MANY_TYPES="500", WORKER_EXECUTORS="1")

    def beat() -> float:
        return float(system.redis.zrange(keys.WORKERS, 0, 0, withscores=True)[0][1])

    def received() -> int:
        return int(system.redis.info("stats")["total_net_input_bytes"])

    first = beat()
    wait_until(lambda: beat() > first, "the first heartbeats are over")
    before, since = received(), beat()
    time.sleep(12)  # a rate is of some time; asking for something meanwhile would be counted too
    assert beat() - since > 5_000_000, "there were heartbeats"
    assert (received() - before) / 12 < 2_000
