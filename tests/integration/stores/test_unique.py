"""Unique keys: who may hold one, for how long, and what happens to the next who wants it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from redis import Redis

from firmq.shared.domain.task import Conflict, NewTask, On, OnParentFailure, Parent, TaskState, Unique, new_task_id
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores import maintenance
from firmq.shared.stores.dead_letters import requeue
from firmq.shared.stores.queues import Queues, SubmitOutcome, Submitted
from firmq.shared.stores.tasks import Records
from tests.support.keys import keys
from tests.support.store import Store


def new(key: str = "k", until: Any = "end", on_conflict: Conflict = Conflict.REFUSE, **options: Any) -> NewTask:
    about = {"id": new_task_id(), "type": "noop", "data": "null", "queue": "normal", **options}
    return NewTask(unique=Unique(key=key, until=until, on_conflict=on_conflict), **about)


def submit(store: Store, task: NewTask) -> Submitted:
    [stored] = store.queues.submit([task])
    return stored


def held(store: Store) -> int:
    return int(store.redis.hlen(keys.UNIQUE))


# --- how long ---


def test_until_its_end_no_other_task_of_the_type_holds_the_key(store: Store) -> None:
    first = submit(store, new())
    second = submit(store, new())
    assert (second.outcome, second.id, second.state) == (SubmitOutcome.CONFLICT, first.id, TaskState.PENDING)
    store.claim()
    assert submit(store, new()).state is TaskState.RUNNING
    store.report(first.id, "completed")
    assert held(store) == 0
    assert submit(store, new()).stored


def test_other_types_and_other_keys_are_free(store: Store) -> None:
    submit(store, new())
    assert submit(store, new(key="other")).stored
    assert submit(store, new(type="echo")).stored


def test_until_its_start_the_next_may_wait_while_it_runs(store: Store) -> None:
    first = submit(store, new(until="start"))
    assert submit(store, new(until="start")).outcome is SubmitOutcome.CONFLICT
    assert store.claim() == [first.id]
    assert held(store) == 0
    assert submit(store, new(until="start")).stored


def test_for_a_time_it_is_held_although_the_task_has_ended(store: Store) -> None:
    first = submit(store, new(until=timedelta(seconds=60)))
    store.claim()
    store.report(first.id, "completed")
    assert submit(store, new()).id == first.id
    assert 59_000 < store.redis.pttl(keys.unique_for("noop:k")) <= 60_000
    store.redis.delete(keys.unique_for("noop:k"))  # as Redis does when the time is over
    assert submit(store, new()).stored


@pytest.mark.parametrize("how", ["failed", "poisoned", "cancelled", "completed"])
def test_every_end_of_an_attempt_lets_go_of_it(store: Store, how: str) -> None:
    first = submit(store, new())
    store.claim()
    if how == "cancelled":
        store.queues.cancel(first.id, "")
    store.report(first.id, how)
    assert held(store) == 0


def test_a_retry_is_no_end(store: Store) -> None:
    first = submit(store, new())
    store.claim()
    store.report(first.id, "retrying", delay_us=1000)
    assert submit(store, new()).state is TaskState.RETRYING


def test_cancelling_and_expiring_let_go_of_it(store: Store) -> None:
    first = submit(store, new())
    store.queues.cancel(first.id, "")
    submit(store, new(expires_in=timedelta(seconds=1)))
    store.clock.advance(timedelta(seconds=2))
    assert maintenance.expire(store.scripts, 10) == 1
    assert held(store) == 0


def test_a_lost_lease_keeps_it_and_death_by_crashing_lets_go(store: Store) -> None:
    submit(store, new())
    store.claim()
    store.clock.advance(timedelta(seconds=20))
    assert maintenance.reap(store.scripts, 10, 3)[0][4] == "pending"
    assert submit(store, new()).outcome is SubmitOutcome.CONFLICT
    [task] = store.claim(token="t2")
    store.extend(task, "t2", "1")
    store.clock.advance(timedelta(seconds=20))
    assert maintenance.reap(store.scripts, 10, 1)[0][4] == "failed"
    assert held(store) == 0


def test_given_back_before_it_began_it_holds_its_key_again(store: Store) -> None:
    first = submit(store, new(until="start"))
    store.claim()
    assert store.scripts.call("release", first.id, "t1", "") == 1
    assert submit(store, new(until="start")).id == first.id


def test_a_dead_letter_sent_back_holds_its_key_again_unless_another_does(store: Store) -> None:
    first = submit(store, new())
    store.claim()
    store.report(first.id, "failed")
    requeue(store.scripts, [first.id])
    assert submit(store, new()).id == first.id
    store.claim(token="t2")
    store.report(first.id, "failed", token="t2")
    second = submit(store, new())
    requeue(store.scripts, [first.id])
    assert submit(store, new()).id == second.id


def test_a_key_whose_task_was_removed_by_hand_is_free(store: Store) -> None:
    first = submit(store, new())
    store.redis.delete(keys.rq_job(first.id))
    assert submit(store, new()).stored


# --- conflicts ---


def test_the_existing_task_is_told(store: Store) -> None:
    first = submit(store, new())
    second = submit(store, new(on_conflict=Conflict.EXISTING))
    assert (second.existing, second.id, second.state) == (True, first.id, TaskState.PENDING)
    assert store.redis.zcard(keys.TASKS) == 1


def test_a_replacement_cancels_the_one_that_waits_and_takes_its_place(store: Store) -> None:
    first = submit(store, new())
    second = submit(store, new(on_conflict=Conflict.REPLACE))
    assert second.stored
    assert store.state(first.id) is TaskState.CANCELLED
    assert store.claim(5) == [second.id]


@pytest.mark.parametrize(
    ("policy", "state"),
    [(OnParentFailure.CANCEL, TaskState.CANCELLED), (OnParentFailure.RELEASE, TaskState.PENDING)],
)
def test_a_replacement_that_depends_on_the_one_that_makes_way_knows_that_it_ended(
    store: Store, policy: OnParentFailure, state: TaskState
) -> None:
    first = submit(store, new(delay=timedelta(hours=1)))
    parents = (Parent(task_id=first.id, on=On.SUCCESS),)
    child = submit(store, new(on_conflict=Conflict.REPLACE, parents=parents, on_parent_failure=policy))
    assert store.state(first.id) is TaskState.CANCELLED
    assert (child.state, store.state(child.id)) == (state, state)


def test_a_replacement_knows_what_became_of_a_parent_with_the_one_that_makes_way(store: Store) -> None:
    first = submit(store, new(delay=timedelta(hours=1)))
    middle = submit(store, new(key="other", parents=(Parent(task_id=first.id, on=On.SUCCESS),)))
    last = submit(store, new(on_conflict=Conflict.REPLACE, parents=(Parent(task_id=middle.id, on=On.SUCCESS),)))
    assert store.state(middle.id) is TaskState.CANCELLED
    assert store.state(last.id) is TaskState.CANCELLED


def test_a_running_task_is_not_replaced(store: Store) -> None:
    first = submit(store, new())
    store.claim()
    second = submit(store, new(on_conflict=Conflict.REPLACE))
    assert (second.outcome, second.id) == (SubmitOutcome.CONFLICT, first.id)


def test_a_replacement_that_has_no_room_replaces_nothing(store: Store) -> None:
    later = submit(store, new(delay=timedelta(hours=1)))
    elsewhere = submit(store, new(key="high", queue="high"))
    store.submit()
    full = Queues(store.scripts, {"high": 4, "normal": 3}, max_length=1)
    for key in ("k", "high"):
        [answer] = full.submit([new(key=key, on_conflict=Conflict.REPLACE)])
        assert answer.outcome is SubmitOutcome.FULL
    assert store.state(later.id) is TaskState.SCHEDULED
    assert store.state(elsewhere.id) is TaskState.PENDING


def test_a_full_queue_takes_a_replacement_because_it_grows_no_longer_by_it(store: Store) -> None:
    first = submit(store, new())
    full = Queues(store.scripts, {"normal": 3}, max_length=1)
    last, plain = new(on_conflict=Conflict.REPLACE), new(key="other")
    answers = full.submit([new(on_conflict=Conflict.REPLACE), last, plain])
    assert [each.outcome for each in answers] == [SubmitOutcome.STORED, SubmitOutcome.STORED, SubmitOutcome.FULL]
    assert store.state(first.id) is TaskState.CANCELLED
    assert store.claim(5) == [last.id]


def test_what_has_ended_within_its_time_can_be_replaced(store: Store) -> None:
    first = submit(store, new(until=timedelta(hours=1)))
    store.claim()
    store.report(first.id, "completed")
    second = submit(store, new(on_conflict=Conflict.REPLACE))
    assert second.stored
    assert store.state(first.id) is TaskState.COMPLETED
    assert submit(store, new()).id == second.id


def test_within_one_call_the_last_replacement_stands(store: Store) -> None:
    tasks = [new(on_conflict=Conflict.REPLACE) for _ in range(5)]
    store.queues.submit(tasks)
    assert [store.state(task.id) for task in tasks] == [TaskState.CANCELLED] * 4 + [TaskState.PENDING]
    assert store.claim(10) == [tasks[-1].id]


def test_the_same_task_sent_twice_does_not_conflict_with_itself(store: Store) -> None:
    task = new()
    assert [submit(store, task).stored for _ in range(2)] == [True, True]


def test_of_parallel_submissions_with_one_unique_key_one_is_stored(redis_client: Redis) -> None:
    queues = Queues(Scripts(redis_client), {"normal": 3})
    barrier = threading.Barrier(8)

    def send(number: int) -> list[Submitted]:
        barrier.wait()
        return [each for _ in range(25) for each in queues.submit([new()])]

    with ThreadPoolExecutor(8) as pool:
        answers = [each for several in pool.map(send, range(8)) for each in several]
    assert sum(each.stored for each in answers) == 1
    assert len({each.id for each in answers}) == 1


def test_parallel_replacements_leave_one_waiting_task(redis_client: Redis) -> None:
    scripts = Scripts(redis_client)
    queues = Queues(scripts, {"normal": 3})

    def send(number: int) -> None:
        for _ in range(20):
            queues.submit([new(on_conflict=Conflict.REPLACE)])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(send, range(8)))
    counts = Records(scripts, ["normal"]).counts()
    assert (counts[TaskState.PENDING], counts[TaskState.CANCELLED]) == (1, 159)
