"""Limits of several partitions: exact at every moment, and used while there is demand."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from datetime import timedelta
from typing import Any, cast

import pytest

from firmq.shared.config.settings import Settings
from firmq.shared.domain.limit import Limit
from firmq.shared.domain.task import NewTask, new_task_id
from firmq.shared.errors import OutdatedTerm, StoreUnavailable
from firmq.shared.redis.client import connect, text
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.limits import Limits, Share, ShareState
from firmq.shared.stores.queues import Queues
from firmq.shared.stores.tasks import Records
from firmq.worker.housekeeping.jobs.limit_shares import LimitShares
from firmq.worker.housekeeping.main import build
from tests.support.clock import FakeClock
from tests.support.store import WEIGHTS, Store

NAME = "type:noop"


class Held:
    """The lock of one run."""

    def __init__(self, term: int) -> None:
        self.term = term

    def check(self) -> None:
        """It is held."""


class Away(Limits):
    """The limits of a partition that can be away, and where something can happen before each call."""

    is_away = False

    def read_shares(self, term: int) -> list[ShareState]:
        self._answer()
        return super().read_shares(term)

    def set_shares(self, term: int, shares: Mapping[tuple[str, str], Share]) -> list[int]:
        self._answer()
        return super().set_shares(term, shares)

    def _answer(self) -> None:
        if self.is_away:
            raise StoreUnavailable("away")


class Partitions:
    """Three partitions on one clock, and the job that shares limits out."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clock = FakeClock()
        self.stores: dict[int, Store] = {}
        self.limits: dict[int, Away] = {}
        for number, own in settings.partitions.items():
            redis = connect(own.store_url)
            scripts = Scripts(redis, self.clock)
            queues = Queues(scripts, WEIGHTS)
            self.stores[number] = Store(redis, self.clock, scripts, queues, Records(scripts, list(WEIGHTS)))
            self.limits[number] = Away(scripts)
        self.job = self.new_job()
        self.term = 0
        self.held: dict[int, list[str]] = {number: [] for number in self.stores}
        self.claims = 0

    def new_job(self) -> LimitShares:
        return LimitShares(self.limits, timedelta(seconds=1), lambda: self.clock.now_us / 1_000_000)

    def put(self, **about: Any) -> None:
        for limits in self.limits.values():
            limits.put(NAME, Limit(**about))

    def share_out(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            self.term += 1
            self.job.run(cast("Any", Held(self.term)))

    def submit(self, number: int, count: int = 1) -> None:
        new = [NewTask(id=new_task_id(), type="noop", data="null", queue="normal") for _ in range(count)]
        self.stores[number].queues.submit(new)

    def claim(self, number: int, want: int = 10) -> int:
        self.clock.advance(timedelta(milliseconds=1))
        self.claims += 1
        found = self.stores[number].claim(want, token=f"c{self.claims}")
        self.held[number] += found
        return len(found)

    def claim_all(self) -> int:
        return sum(self.claim(number) for number in self.stores)

    def end(self, number: int) -> None:
        store, task_id = self.stores[number], self.held[number].pop(0)
        token = store.redis.hget(store.scripts.keys.rq_job(task_id), "token")
        assert store.report(task_id, "completed", text(token)) == 1

    @property
    def running(self) -> int:
        return sum(map(len, self.held.values()))


@pytest.fixture(name="three")
def partitions(three: Settings) -> Iterator[Partitions]:
    made = Partitions(three)
    yield made
    for each in made.stores.values():
        each.redis.close()


def test_nothing_starts_before_the_limit_is_shared_out_and_then_all_of_it_is_used(three: Partitions) -> None:
    three.put(concurrency=5)
    for number in three.stores:
        three.submit(number, 10)
    assert three.claim_all() == 0
    three.share_out()
    three.claim_all()
    assert three.running == 5


@pytest.mark.parametrize("concurrency", [1, 2, 5])
def test_slots_follow_the_demand(three: Partitions, concurrency: int) -> None:
    three.put(concurrency=concurrency)
    three.share_out()
    three.submit(2, 20)
    three.claim(2)
    three.share_out(2)
    three.claim(2)
    assert three.running == concurrency, "all slots are where the tasks are"
    three.submit(0, 20)
    three.claim(0)
    for _ in range(12):
        three.end(2 if three.held[2] else 0)
        three.clock.advance(timedelta(seconds=1))
        three.share_out()
        three.claim_all()
        assert three.running <= concurrency
    assert three.held[0], "the partition that came later gets its part"


def test_a_partition_that_is_away_keeps_its_share_and_the_others_go_on(three: Partitions) -> None:
    three.put(concurrency=6)
    for number in three.stores:
        three.submit(number, 9)
    three.claim_all()
    three.share_out()
    three.claim_all()
    assert [len(held) for held in three.held.values()] == [2, 2, 2]
    three.limits[1].is_away = True
    while three.held[0]:
        three.end(0)
    for number in (0, 2):
        while three.held[number]:
            three.end(number)
        three.share_out()
        three.claim(0)
        three.claim(2)
        assert len(three.held[0]) + len(three.held[2]) == 4, "not more than the two of them have"


def test_tasks_that_run_already_count(three: Partitions) -> None:
    for number in three.stores:
        three.submit(number, 4)
    three.claim_all()
    assert three.running == 12
    three.put(concurrency=5)
    for number in three.stores:
        three.submit(number, 4)
    for _ in range(7):
        three.share_out()
        assert three.claim_all() == 0
        three.end(next(number for number, held in three.held.items() if held))
    three.end(next(number for number, held in three.held.items() if held))
    three.share_out()
    assert three.claim_all() == 1


def test_a_suspended_process_cannot_give_what_a_later_one_gave(three: Partitions) -> None:
    three.put(concurrency=1)
    three.share_out()
    late = three.limits[2].read_shares(three.term)
    three.share_out()
    [state] = late
    with pytest.raises(OutdatedTerm):
        three.limits[2].read_shares(three.term - 1)
    assert three.limits[2].set_shares(three.term - 1, {(state.name, state.numbers): Share(9, 0)}) == [-1]


def test_a_request_that_arrives_after_the_next_reading_changes_nothing(three: Partitions) -> None:
    """The job gives up a request to a server that is suspended; the server executes it when it continues."""
    three.put(concurrency=1)
    three.share_out()
    given_up, later = Limits(three.stores[2].scripts), Limits(three.stores[2].scripts)
    [state] = given_up.read_shares(three.term)
    wanted = {(state.name, state.numbers): Share(9, 0)}
    assert later.read_shares(three.term) == [state]
    assert given_up.set_shares(three.term, wanted) == [-1]
    assert later.read_shares(three.term) == [state]
    assert later.set_shares(three.term, wanted) == [9]


def test_a_limit_of_a_time_with_one_server_is_shared_from_the_first_run(three: Partitions) -> None:
    alone = three.stores[0].scripts
    alone.is_partition = False
    Limits(alone).put(NAME, Limit(concurrency=3))
    alone.is_partition = True
    for number in (1, 2):
        three.limits[number].put(NAME, Limit(concurrency=3))
        three.submit(number, 5)
    three.submit(0, 5)
    three.claim_all()
    assert three.running == 3
    three.share_out(3)
    three.claim_all()
    assert three.running == 3
    three.end(0)
    three.share_out()
    three.claim_all()
    assert three.running == 3
    assert len(three.held[0]) < 3, "the others get a part"


def test_a_limit_that_was_removed_and_set_again_is_shared_out_anew(three: Partitions) -> None:
    three.put(concurrency=6)
    three.share_out()
    for limits in three.limits.values():
        limits.delete(NAME)
    three.put(concurrency=6)
    for number in three.stores:
        three.submit(number, 3)
    assert three.claim_all() == 0


def test_a_share_of_other_numbers_counts_for_nothing(three: Partitions) -> None:
    """A process of an older version may change a limit without its share."""
    three.put(concurrency=6)
    three.share_out()
    store = three.stores[0]
    store.redis.hset(store.scripts.keys.LIMITS, NAME, '{"concurrency": 1, "shared": true, "source": "api"}')
    three.submit(0, 3)
    assert three.claim(0) == 0


@pytest.mark.parametrize("burst", [1, 2.5, 6])
def test_a_rate_over_all_partitions(three: Partitions, burst: float) -> None:
    three.put(count=10, per=1, burst=burst)
    for number in three.stores:
        three.submit(number, 100)
    three.share_out()
    started = three.claim_all()
    for _ in range(100):
        three.clock.advance(timedelta(milliseconds=97))
        three.share_out()
        started += three.claim_all()
    assert 100 * 0.9 <= started <= 100 + burst, "ten a second for ten seconds, and the burst"
    assert all(len(held) > 15 for held in three.held.values()), "each gets its turns"


def test_a_burst_is_not_given_twice(three: Partitions) -> None:
    three.put(count=1, per=10, burst=4)
    three.share_out()
    for number in three.stores:
        three.submit(number, 10)
        three.share_out(3)
        three.claim_all()
    assert three.running <= 4


class Acts:
    """What can happen to three partitions with a limit."""

    def __init__(self, three: Partitions, chance: random.Random) -> None:
        self.three = three
        self.chance = chance
        self.limit = 5
        three.put(concurrency=self.limit)

    def act(self) -> None:
        acts = {
            self.submit: 2,
            self.claim: 5,
            self.end: 4,
            self.share_out: 4,
            self.leave_or_return: 1,
            self.interrupt: 1,
            self.change: 1,
        }
        [chosen] = self.chance.choices(list(acts), list(acts.values()))
        chosen(self.chance.randrange(3))

    def submit(self, number: int) -> None:
        self.three.submit(number, 3)

    def claim(self, number: int) -> None:
        self.three.claim(number, self.chance.randint(1, 5))

    def end(self, number: int) -> None:
        if self.three.held[number]:
            self.three.end(number)

    def share_out(self, number: int) -> None:
        self.three.clock.advance(timedelta(milliseconds=self.chance.randint(1, 2000)))
        with suppress(OutdatedTerm):
            self.three.share_out()

    def leave_or_return(self, number: int) -> None:
        self.three.limits[number].is_away = not self.three.limits[number].is_away

    def interrupt(self, number: int) -> None:
        """A process that was suspended between two steps goes on after a later one."""
        three, suspended = self.three, self.three.new_job()
        term, three.term = three.term + 1, three.term + 2
        set_shares = suspended._set

        def interrupted(held: Any, changes: Any) -> Any:
            with suppress(OutdatedTerm):
                three.job.run(cast("Any", Held(three.term)))
            three.claim_all()
            return set_shares(held, changes)

        suspended._set = interrupted  # type: ignore[method-assign]
        with suppress(OutdatedTerm):
            suspended.run(cast("Any", Held(term)))

    def change(self, number: int) -> None:
        """Another limit, which one partition after the other learns of."""
        if any(each.is_away for each in self.three.limits.values()):
            return
        limit = self.chance.choice([1, 3, 5, 8])
        for each in self.chance.sample(list(self.three.limits.values()), 3):
            each.put(NAME, Limit(concurrency=limit))
            before = self.three.running
            self.three.claim_all()
            assert self.three.running in (before, *range(max(limit, self.limit) + 1))
        self.limit = limit


@pytest.mark.parametrize("seed", range(6))
def test_a_limit_is_exact_whatever_happens(three: Partitions, seed: int) -> None:
    acts = Acts(three, random.Random(seed))
    for _ in range(400):
        before, limit = three.running, acts.limit
        acts.act()
        if three.running > before:
            assert three.running <= max(limit, acts.limit)
    for limits in three.limits.values():
        limits.is_away = False
    for number in three.stores:
        three.submit(number, 20)
    three.claim_all()
    for _ in range(20):
        while three.running > acts.limit:
            three.end(next(number for number, held in three.held.items() if held))
        three.share_out()
        three.claim_all()
    assert three.running == acts.limit, "all of it is used"


def test_only_one_of_two_housekeepers_shares_limits_out_also_without_other_locks(three: Partitions) -> None:
    """As while a deployment replaces its only housekeeper."""
    assert not three.settings.housekeeper_distributed_execution_enabled
    own = three.settings.partitions
    with ExitStack() as stack:
        scripts = {number: Scripts(stack.enter_context(connect(each.store_url))) for number, each in own.items()}
        both = [
            next(
                strategy
                for job, strategy in build(own[0], scripts[0], partitions=scripts).runner.strategies.items()
                if job.name == "limit_shares"
            )
            for _ in range(2)
        ]
        held = both[0].begin()
        assert held is not None
        assert held.term > 0, "a later process is told apart"
        assert both[1].begin() is None
        both[0].end(held)
