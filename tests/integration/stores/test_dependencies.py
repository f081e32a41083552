"""Tasks that depend on others: who waits, who is told, who is kept, and that nobody is forgotten."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from redis import Redis

from firmq.shared.domain.lock import FencingToken
from firmq.shared.domain.task import NewTask, On, OnParentFailure, Parent, TaskState, new_task_id
from firmq.shared.errors import TaskNotFound
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores import maintenance
from firmq.shared.stores.dead_letters import DeadLetters, purge
from firmq.shared.stores.queues import Queues, Submitted
from firmq.shared.stores.tasks import Records
from tests.support.attempt_ends import claiming
from tests.support.clock import FakeClock
from tests.support.harness import System
from tests.support.keys import keys
from tests.support.store import WEIGHTS, Store

S = TaskState
NO_RETRIES = {"max_retries": 0}


class Family(Store):
    """A store whose tasks depend on each other."""

    def child(self, *parents: str, on: On = On.SUCCESS, task_id: str = "", **options: Any) -> str:
        [answer] = self.offer(*parents, on=on, task_id=task_id, **options)
        assert answer.state is not None, answer
        return answer.id

    def offer(self, *parents: str, on: On = On.SUCCESS, task_id: str = "", **options: Any) -> list[Submitted]:
        wanted = tuple(Parent(task_id=each, on=on) for each in parents)
        task = NewTask(id=task_id or new_task_id(), type="noop", data="null", queue="normal", parents=wanted, **options)
        return self.queues.submit([task])

    def run(self, task_id: str, kind: str = "completed") -> None:
        """A worker takes everything, and this task ends so; the others are given back."""
        token = new_task_id()
        taken = self.claim(500, token=token)
        assert task_id in taken, (task_id, taken, self.state(task_id))
        assert self.report(task_id, kind, token) == 1
        for each in taken:
            if each != task_id:
                self.scripts.call("release", each, token, "")

    def pay(self) -> int:
        """Everything that is owed is done; in how many steps."""
        steps = 0
        while self.redis.exists(keys.DEFERRED_WORK):
            maintenance.run_deferred(self.scripts, 500)
            steps += 1
        return steps

    def walk(self) -> dict[str, int]:
        """One walk of the recovery over everything."""
        wrong: dict[str, int] = {}
        self.redis.delete(keys.RECOVERY_CURSOR)
        for _ in range(50):
            _, found = maintenance.check_consistency(self.scripts, list(WEIGHTS), 10_000_000, 1000, FencingToken())
            for what, times in found.items():
                wrong[what] = wrong.get(what, 0) + times
        return wrong


@pytest.fixture
def family(redis_client: Redis) -> Family:
    scripts = Scripts(redis_client, FakeClock())
    return Family(redis_client, scripts.clock, scripts, Queues(scripts, WEIGHTS), Records(scripts, list(WEIGHTS)))  # type: ignore[arg-type]  # it is a FakeClock


def test_a_child_waits_for_its_parent_and_then_runs(family: Family) -> None:
    [parent] = family.submit()
    child = family.child(parent)
    assert family.state(child) is S.BLOCKED
    assert family.claim(5) == [parent]
    assert family.redis.zscore(keys.rq_deferred("normal"), child) is not None
    family.report(parent, "completed")
    assert family.state(child) is S.PENDING
    assert family.redis.zscore(keys.rq_deferred("normal"), child) is None
    assert family.claim(5, token="t2") == [child]


def test_a_parent_that_is_retried_is_waited_for(family: Family) -> None:
    [parent] = family.submit()
    child = family.child(parent, on=On.END)
    family.run(parent, "retrying")
    assert family.state(child) is S.BLOCKED


@pytest.mark.parametrize("kind", ["failed", "poisoned"])
def test_a_dead_parent_cancels_its_children_and_says_why(family: Family, kind: str) -> None:
    [parent] = family.submit()
    child = family.child(parent)
    grandchild = family.child(child)
    family.run(parent, kind)
    assert (family.state(child), family.state(grandchild)) == (S.CANCELLED, S.CANCELLED)
    assert family.records.get(child).cancel_requested == f"task {parent}, which it depends on, failed"
    assert family.records.get(grandchild).cancel_requested == f"task {child}, which it depends on, was cancelled"


def test_a_child_that_wants_any_end_runs_whatever_became_of_its_parent(family: Family) -> None:
    one, two, three = family.submit(3)
    children = [family.child(each, on=On.END) for each in (one, two, three)]
    family.run(one, "failed")
    family.queues.cancel(two, "not needed")
    family.run(three, "completed")
    assert [family.state(each) for each in children] == [S.PENDING] * 3


def test_a_child_may_be_released_by_the_failure_of_its_parent(family: Family) -> None:
    one, two = family.submit(2)
    child = family.child(one, two, on_parent_failure=OnParentFailure.RELEASE)
    family.run(one, "failed")
    assert family.state(child) is S.BLOCKED, "it still waits for the other"
    family.run(two)
    assert family.state(child) is S.PENDING


def test_a_child_may_wait_for_a_dead_letter_to_be_retried(family: Family) -> None:
    [parent] = family.submit()
    child = family.child(parent, on_parent_failure=OnParentFailure.WAIT)
    letters = DeadLetters(family.scripts, family.records)
    for _ in range(2):
        family.run(parent, "failed")
        assert family.state(child) is S.BLOCKED
        assert family.walk() == {}, "that is no fault"
        letters.requeue(parent)
    family.run(parent)
    assert family.state(child) is S.PENDING


def test_a_child_of_a_dead_letter_that_is_removed_waits_no_longer(family: Family) -> None:
    [parent] = family.submit()
    child = family.child(parent, on_parent_failure=OnParentFailure.WAIT)
    family.run(parent, "failed")
    DeadLetters(family.scripts, family.records).purge(parent)
    family.pay()
    assert family.state(child) is S.CANCELLED
    assert "was removed" in str(family.records.get(child).cancel_requested)
    assert not family.redis.exists(keys.children(parent))


def test_parents_that_ended_before_are_looked_at_when_the_child_comes(family: Family) -> None:
    good, bad = family.submit(2)
    family.run(good)
    family.run(bad, "failed")
    assert family.state(family.child(good)) is S.PENDING
    assert family.state(family.child(bad, on=On.END)) is S.PENDING
    assert family.state(family.child(bad)) is S.CANCELLED
    assert family.state(family.child(good, bad, on_parent_failure=OnParentFailure.WAIT)) is S.BLOCKED
    assert family.state(family.child(good, delay=timedelta(seconds=5))) is S.SCHEDULED


def test_a_parent_that_does_not_exist_is_refused_by_name(family: Family) -> None:
    [answer] = family.offer("nobody")
    assert (answer.state, answer.missing_parent) == (None, "nobody")
    assert not family.redis.exists(keys.rq_job(answer.id))


def test_sent_twice_it_waits_once(family: Family) -> None:
    [parent] = family.submit()
    child = family.child(parent)
    before = family.snapshot()
    family.child(parent, task_id=child)
    assert family.snapshot() == before


def test_the_tip_of_a_diamond_runs_once_when_both_sides_have(family: Family) -> None:
    [top] = family.submit()
    left, right = family.child(top), family.child(top)
    tip = family.child(left, right)
    family.run(top)
    family.run(left)
    assert family.state(tip) is S.BLOCKED
    family.run(right)
    assert family.state(tip) is S.PENDING
    family.run(tip)
    assert not family.redis.keys(keys.children("*")), "nobody is kept for anybody any more"


def test_a_child_that_is_cancelled_with_its_other_parent_is_not_kept_for(family: Family) -> None:
    [top] = family.submit()
    left = family.child(top)
    family.clock.advance(timedelta(seconds=1))
    tip = family.child(left, top)
    family.run(top, "failed")
    assert (family.state(left), family.state(tip)) == (S.CANCELLED, S.CANCELLED)
    assert not family.redis.keys(keys.children("*")), "left was told first, and took the tip with it"


def test_children_that_ended_do_not_keep_a_parent_for_ever(family: Family) -> None:
    [parent] = family.submit()
    child = family.child(parent)
    family.run(parent)
    family.run(child)
    family.redis.zadd(keys.children(parent), {child: 0, "gone": 0})
    family.clock.advance(timedelta(days=2))
    maintenance.prune(family.scripts, "completed", 86_400_000_000, 10)
    with pytest.raises(TaskNotFound):
        family.state(parent)


def test_a_child_with_a_time_of_its_own_waits_for_that_too(family: Family) -> None:
    [parent] = family.submit()
    child = family.child(parent, delay=timedelta(minutes=1))
    family.run(parent)
    assert family.state(child) is S.SCHEDULED
    assert family.redis.zscore(keys.rq_scheduled("normal"), child)
    family.clock.advance(timedelta(minutes=2))
    maintenance.promote(family.scripts, "normal", 10)
    assert family.state(child) is S.PENDING


def test_a_blocked_task_can_be_cancelled_and_can_expire(family: Family) -> None:
    [parent] = family.submit()
    one, two = family.child(parent), family.child(parent, expires_in=timedelta(seconds=5))
    below = family.child(two, on=On.END)
    family.queues.cancel(one, "enough")
    family.clock.advance(timedelta(seconds=6))
    maintenance.expire(family.scripts, 10)
    assert [family.state(each) for each in (one, two, below)] == [S.CANCELLED, S.EXPIRED, S.PENDING]
    family.run(parent)
    assert [family.state(each) for each in (one, two)] == [S.CANCELLED, S.EXPIRED]


def test_a_parents_result_is_kept_until_its_child_has_ended(family: Family) -> None:
    first, second = family.submit(2)
    child = family.child(first, second)
    family.run(first)
    family.clock.advance(timedelta(days=2))
    assert maintenance.prune(family.scripts, "completed", 86_400_000_000, 10) == (0, 1), "it is put off, not removed"
    assert maintenance.trim(family.scripts, "completed", 0, 10) == (0, 1)
    assert family.state(first) is S.COMPLETED
    family.run(second)
    family.run(child)
    family.clock.advance(timedelta(days=2))
    maintenance.prune(family.scripts, "completed", 86_400_000_000, 10)
    with pytest.raises(TaskNotFound):
        family.state(first)


def test_the_claim_tells_a_child_how_its_parents_ended(family: Family) -> None:
    good, bad = family.submit(2)
    child = family.child(good, bad, on=On.END)
    family.run(good)
    family.run(bad, "failed")
    reply = family.scripts.call("claim", *claiming("w", "t9", 10_000_000, 5, 1 << 20, "normal", 5))
    assert reply[3][0][0] == child.encode()
    assert reply[3][0][12].decode() == (
        f'{{"parents":[["{good}","completed","bnVsbA=="],["{bad}","failed","{{\\"type\\":\\"E\\",\\"message\\":\\"m\\"}}"]]}}'
    )


def test_a_chain_of_a_thousand_runs_in_its_order(family: Family) -> None:
    chain = family.submit(1)
    for _ in range(999):
        chain.append(family.child(chain[-1]))
    for each in chain:
        assert family.claim(10, token=each) == [each]
        family.report(each, "completed", token=each)
    assert family.records.counts()[S.COMPLETED] == 1000


def test_a_chain_of_a_thousand_ends_when_its_first_fails(family: Family) -> None:
    chain = family.submit(1)
    for _ in range(999):
        chain.append(family.child(chain[-1]))
    family.run(chain[0], "failed")
    assert 1 < family.records.counts()[S.BLOCKED] < 1000, "one step does a part of it"
    family.pay()
    assert family.records.counts()[S.CANCELLED] == 999
    assert not family.redis.keys(keys.children("*"))


def test_ten_thousand_children_are_released_in_bounded_steps(family: Family) -> None:
    [parent] = family.submit()
    children = [
        NewTask(id=new_task_id(), type="noop", data="null", queue="normal", parents=(Parent(task_id=parent),))
        for _ in range(10_000)
    ]
    family.queues.submit(children)
    family.run(parent)
    left = 10_000
    taken: list[str] = []
    while len(taken) < 10_000:
        blocked = family.records.counts()[S.BLOCKED]
        assert left - blocked <= 200, "one step tells few of them"
        left = blocked
        got = family.claim(500, token=new_task_id())
        assert got or family.redis.exists(keys.DEFERRED_WORK), "claims carry it on, nobody else has to help"
        taken += got
    assert sorted(taken) == sorted(each.id for each in children), "each once"


def test_a_crash_in_the_middle_of_the_release_is_carried_on_by_the_housekeeper(family: Family) -> None:
    [parent] = family.submit()
    for _ in range(300):
        family.child(parent)
    family.run(parent)
    assert family.redis.zrange(keys.DEFERRED_WORK, 0, -1) == [f"task:{parent}".encode()]
    assert family.pay() >= 1
    assert family.records.counts()[S.PENDING] == 300


@pytest.mark.parametrize("lost", ["children", "owed", "open_parents", "blocked"])
def test_recovery_restores_lost_indexes(family: Family, lost: str) -> None:
    one, two = family.submit(2)
    children = [family.child(one, two) for _ in range(150)]
    if lost == "open_parents":
        family.redis.hset(keys.rq_job(children[0]), "open_parents", 9)
    if lost == "children":
        family.redis.delete(keys.children(one), keys.children(two))
    if lost == "blocked":
        family.redis.delete(keys.BLOCKED, keys.rq_deferred("normal"))
    family.run(one)
    found = family.walk() if lost == "children" else {}
    family.run(two)
    if lost == "owed":
        family.redis.delete(keys.DEFERRED_WORK)
    assert family.walk() or found
    family.pay()
    assert family.walk() == {}
    assert family.records.counts()[S.PENDING] == 150


@pytest.mark.parametrize(
    ("on", "policy"), [(On.END, OnParentFailure.CANCEL), (On.SUCCESS, OnParentFailure.RELEASE)], ids=["end", "release"]
)
def test_a_parent_that_is_removed_while_its_child_waits_for_another_is_nothing_to_mend(
    family: Family, on: On, policy: OnParentFailure
) -> None:
    one, two = family.submit(2)
    child = family.child(one, two, on=on, on_parent_failure=policy)
    family.run(one, "failed")
    purge(family.scripts, S.FAILED, [one])
    family.pay()
    assert family.walk() == {}
    assert family.state(child) is S.BLOCKED
    family.run(two)
    assert family.state(child) is S.PENDING


# --- real workers ---


def test_a_handler_has_the_results_of_its_parents(system: System) -> None:
    system.start_worker(WORKER_EXECUTORS="2")
    one, two = system.submit("echo", '{"data": {"n": 1}}'), system.submit("fail", '{"message": "no"}', retry=NO_RETRIES)
    parents = (Parent(task_id=one), Parent(task_id=two, on=On.END))
    child = system.ended(system.submit("gather", parents=parents))
    assert child.result == {one: {"data": {"n": 1}}, two: "failed: RuntimeError: no"}
    assert system.records.get(child.summary.id).parents == parents


def test_a_wide_and_deep_family_is_run_by_workers_alone(system: System) -> None:
    """Without a housekeeper: what is owed is paid by whoever claims."""
    system.start_worker(WORKER_EXECUTORS="2")
    system.queues.pause("normal", "until all are there")
    root = system.submit("noop")
    middle = [
        NewTask(id=new_task_id(), type="noop", data="null", queue="normal", parents=(Parent(task_id=root),))
        for _ in range(600)
    ]
    system.queues.submit(middle)
    last = system.submit("noop", parents=tuple(Parent(task_id=each.id) for each in middle))
    system.queues.resume("normal")
    assert system.ended(last, 60).summary.state is S.COMPLETED
    assert system.records.counts()[S.COMPLETED] == 602
