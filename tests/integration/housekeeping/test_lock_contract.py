"""What every kind of lock promises, and what only locks that are shared can."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ConnectionError

from firmq.shared.config.settings import Settings
from firmq.shared.domain.lock import Lock, OnError
from firmq.shared.errors import LockChanged, LockLost, StepRefused
from firmq.shared.features.history.unarchived import Unarchived
from firmq.shared.redis.client import text_or_number
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores import maintenance
from firmq.shared.stores.audit import Audit
from firmq.shared.stores.locks import (
    LEADER,
    FreeLock,
    LockAdmin,
    Locks,
    NoLocks,
    RedisLocks,
    lock_acquire,
    lock_names,
)
from firmq.shared.stores.presence import RELAY, Presence
from firmq.shared.stores.schedules import schedule_fire
from firmq.worker.features.history.feature import forget_history
from firmq.worker.housekeeping.locking import Leadership
from firmq.worker.housekeeping.main import build, lock_of
from tests.integration.housekeeping.conftest import Machine, Ticker
from tests.support.clock import FakeClock
from tests.support.harness import wait_until
from tests.support.keys import keys

LIFE = timedelta(seconds=30)
LOCK = Lock(name="unlock", at_most=LIFE)


@pytest.fixture(autouse=True)
def watchdogs_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A watchdog that outlives its test finds its lock lost in the Redis of the next one, and counts that there."""
    made: list[RedisLocks] = []
    begin = RedisLocks.__init__

    def note(self: RedisLocks, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options)
        made.append(self)

    monkeypatch.setattr(RedisLocks, "__init__", note)
    yield
    for each in made:
        each.stop()


# --- Every lock --------------------------------------------------------------------------------------------------


@pytest.fixture(params=["redis", "none"])
def locks(request: pytest.FixtureRequest, machine: Machine) -> Locks:
    return machine.instance("hk-1") if request.param == "redis" else NoLocks()


def test_a_free_lock_is_taken_and_trusted(locks: Locks) -> None:
    held = locks.acquire(LOCK)
    assert held is not None
    assert held.name == "unlock"
    assert held.trusted
    held.check()


def test_a_held_lock_can_be_extended(locks: Locks) -> None:
    held = locks.acquire(LOCK)
    assert held is not None
    assert held.extend()
    assert held.trusted


def test_a_released_lock_can_be_taken_again(locks: Locks) -> None:
    for _ in range(3):
        held = locks.acquire(LOCK)
        assert held is not None
        assert held.release()


def test_locks_of_other_names_do_not_hinder_each_other(locks: Locks) -> None:
    held = [locks.acquire(Lock(name=name, at_most=LIFE)) for name in ("unlock", "timeout", "ttl")]
    assert all(held)


def test_a_step_that_shows_the_permit_is_let_through(locks: Locks, machine: Machine) -> None:
    held = locks.acquire(LOCK)
    assert held is not None
    assert maintenance.promote(machine.scripts, "normal", 10, held.fencing_token)[0] == 0


def test_terms_never_fall(locks: Locks) -> None:
    terms = []
    for _ in range(5):
        held = locks.acquire(LOCK)
        assert held is not None
        terms.append(held.term)
        held.release()
    assert terms == sorted(terms)


# --- Shared locks ------------------------------------------------------------------------------------------------


def test_only_one_instance_gets_a_lock(machine: Machine) -> None:
    assert machine.instance("hk-1").acquire(LOCK)
    assert machine.instance("hk-2").acquire(LOCK) is None


def test_an_instance_that_was_restarted_under_its_name_does_not_inherit_its_lock(machine: Machine) -> None:
    assert machine.instance("hk-1").acquire(LOCK)
    assert machine.instance("hk-1").acquire(LOCK) is None


def test_a_dead_holders_lock_is_free_when_its_life_is_over(machine: Machine) -> None:
    assert machine.instance("hk-1").acquire(LOCK)
    machine.advance(29.9)
    assert machine.instance("hk-2").acquire(LOCK) is None
    machine.advance(0.2)
    assert machine.instance("hk-2").acquire(LOCK)


def test_the_key_itself_ends_too(machine: Machine) -> None:
    machine.instance("hk-1").acquire(LOCK)
    assert 29_000 < machine.redis.pttl(keys.lock("unlock")) <= 30_001


def test_a_lock_without_expiry_still_ends(machine: Machine) -> None:
    machine.instance("hk-1").acquire(LOCK)
    machine.redis.persist(keys.lock("unlock"))
    machine.advance(31)
    assert machine.instance("hk-2").acquire(LOCK)


def test_an_extended_lock_lives_on(machine: Machine) -> None:
    held = machine.instance("hk-1").acquire(LOCK)
    assert held is not None
    for _ in range(4):
        machine.advance(20)
        assert held.extend()
    assert machine.instance("hk-2").acquire(LOCK) is None


def test_asking_again_after_a_lost_answer_gives_the_same_lock(machine: Machine) -> None:
    first = lock_acquire(machine.scripts, "unlock", "nonce", "hk-1", LIFE, timedelta())
    assert lock_acquire(machine.scripts, "unlock", "nonce", "hk-1", LIFE, timedelta()) == first


def test_the_fencing_number_grows_also_when_redis_forgot_it(machine: Machine) -> None:
    terms = []
    for _ in range(3):
        held = machine.instance("hk-1").acquire(LOCK)
        assert held is not None
        terms.append(held.term)
        held.release()
    machine.redis.flushall()
    machine.advance(0.1)
    held = machine.instance("hk-1").acquire(LOCK)
    assert held is not None
    assert [*terms, held.term] == sorted({*terms, held.term})


def test_tokens_differ_even_when_a_rollback_repeats_the_number(machine: Machine) -> None:
    tokens = set()
    for _ in range(3):
        held = machine.instance("hk-1").acquire(LOCK)
        assert held is not None
        tokens.add(held.fencing_token.token)
        machine.redis.flushall()  # and no time passes
    assert len(tokens) == 3


def test_a_late_holder_cannot_release_or_extend_anothers_lock(machine: Machine) -> None:
    late = machine.instance("hk-1").acquire(LOCK)
    machine.advance(31)
    other = machine.instance("hk-2").acquire(LOCK)
    assert late is not None
    assert other is not None
    assert not late.extend()
    assert not late.release()
    assert other.extend()


def test_a_late_holder_who_knows_nothing_cannot_release_anothers_lock(machine: Machine) -> None:
    late = machine.instance("hk-1").acquire(LOCK)
    machine.advance(31)
    other = machine.instance("hk-2").acquire(LOCK)
    assert late is not None
    assert other is not None
    assert not late.release()
    assert other.extend()


def test_a_late_holders_steps_are_refused_where_data_changes(machine: Machine) -> None:
    late = machine.instance("hk-1").acquire(LOCK)
    assert late is not None
    machine.advance(31)
    steps = (
        lambda: maintenance.promote(machine.scripts, "normal", 10, late.fencing_token),
        lambda: maintenance.reap(machine.scripts, 10, 3, late.fencing_token),
        lambda: maintenance.expire(machine.scripts, 10, late.fencing_token),
        lambda: maintenance.prune(machine.scripts, "completed", 0, 10, late.fencing_token),
        lambda: maintenance.trim(machine.scripts, "completed", 0, 10, late.fencing_token),
        lambda: maintenance.recover(machine.scripts, "normal", 0, 10, late.fencing_token),
        lambda: maintenance.restore_entries(machine.scripts, "normal", 0, ["any"], late.fencing_token),
        lambda: maintenance.check_consistency(machine.scripts, ["normal"], 1, 10, late.fencing_token),
        lambda: schedule_fire(machine.scripts, late.fencing_token, "n", "r", "1", "2", 0, "allow"),
    )
    for step in steps:
        with pytest.raises(StepRefused):
            step()


def test_a_holder_stops_trusting_its_lock_before_it_can_end(machine: Machine) -> None:
    held = machine.instance("hk-1").acquire(LOCK)
    assert held is not None
    machine.advance(23.9)
    held.check()
    machine.advance(0.2)
    with pytest.raises(LockLost):
        held.check()


def test_a_holder_that_was_frozen_does_not_go_on(machine: Machine) -> None:
    held = machine.instance("hk-1").acquire(LOCK)
    assert held is not None
    machine.ticker.now += 3600  # it slept; nobody asked Redis anything
    assert not held.trusted


def test_a_minimum_hold_outlasts_the_release(machine: Machine) -> None:
    lock = Lock(name="timeout", at_most=LIFE, at_least=timedelta(seconds=0.8))
    held = machine.instance("hk-1").acquire(lock)
    assert held is not None
    assert held.release()
    assert machine.instance("hk-2").acquire(lock) is None
    machine.advance(0.81)
    assert machine.instance("hk-2").acquire(lock)


def of_all_jobs(machine: Machine, interval: timedelta | None = None) -> list[Lock]:
    """The locks that jobs take for each run by default, with their own intervals or with this one."""
    parts = build(Settings(), machine.scripts)
    assert isinstance(parts.locks, RedisLocks)
    jobs = [job for job in parts.runner.jobs if job.name != LEADER]
    for job in jobs:
        job.interval = interval or job.interval
    return [lock_of(Settings(), job) for job in jobs]


@pytest.mark.parametrize("starts", [(0, 1 / 3, 2 / 3), (0, 0.82, 0.95), (0, 0.001, 0.99)])
@pytest.mark.parametrize("seconds", [None, 600, 3600, 86400])
def test_three_instances_together_keep_to_the_interval(
    machine: Machine, seconds: float | None, starts: tuple[float, ...]
) -> None:
    instances = [machine.instance(f"hk-{number}") for number in range(3)]
    interval = timedelta(seconds=seconds) if seconds else None
    for lock in of_all_jobs(machine, interval):
        every = (interval or lock.at_least / 0.8).total_seconds()
        now, runs = 0.0, 0
        for at, instance in sorted((turn + start, each) for each, start in enumerate(starts) for turn in range(4)):
            machine.advance(at * every - now)
            now = at * every
            if held := instances[instance].acquire(lock):
                runs += 1
                held.release()
        machine.advance(2 * every)
        assert runs == 4 or (runs == 5 and every < 25), f"{runs} runs of {lock.name}"


@pytest.mark.parametrize("seconds", [None, 3600])
def test_a_dead_holder_costs_the_life_of_the_lock_however_long_the_interval(
    machine: Machine, seconds: float | None
) -> None:
    for lock in of_all_jobs(machine, timedelta(seconds=seconds) if seconds else None):
        assert machine.instance("hk-1").acquire(lock), "it dies while it runs"
        assert lock.at_most == LIFE
        machine.advance(LIFE.total_seconds() - 1)
        assert machine.instance("hk-2").acquire(lock) is None
        machine.advance(2)
        assert machine.instance("hk-2").acquire(lock)


def leading() -> Lock:
    """The leader's lock by default."""

    class Metrics:
        name = LEADER
        interval = timedelta(seconds=Settings().housekeeper_metrics_interval)

    return lock_of(Settings(), Metrics())  # type: ignore[arg-type]  # what a lock needs of a job


def test_the_leaders_lock_lives_longest_and_a_dead_leader_is_replaced_all_the_same(machine: Machine) -> None:
    lock = leading()
    assert lock.at_most > max(each.at_most for each in of_all_jobs(machine))
    dead = machine.instance("hk-1").acquire(lock)
    assert dead is not None
    machine.advance(lock.silence.total_seconds() - 0.1)
    assert machine.instance("hk-2").acquire(lock) is None
    machine.advance(0.2)
    assert not dead.trusted, "it stops first, also without an answer of Redis"
    assert machine.instance("hk-2").acquire(lock)
    assert not dead.extend()
    assert machine.instance("hk-3").acquire(lock) is None


def test_a_slow_leader_keeps_its_term_unless_another_asks(machine: Machine) -> None:
    lock = leading()
    lead = Leadership(machine.instance("hk-1"), lock, "hk-1")
    assert lead.begin()
    term = lead.term
    for _ in range(3):
        machine.advance(lock.at_most.total_seconds() - 1)
        assert lead.leads()
        assert machine.instance("hk-2").acquire(lock) is None
    assert (lead.term, lead.elections) == (term, 1)


@pytest.mark.parametrize("back", [20, 300, 3600])
def test_a_dead_leader_is_replaced_after_the_clock_of_redis_was_set_back(machine: Machine, back: float) -> None:
    lock = leading()
    assert machine.instance("hk-1").acquire(lock)
    machine.clock.advance(-timedelta(seconds=back))
    machine.advance(back + 10 if back < 60 else 0)
    assert machine.instance("hk-2").acquire(lock)


def test_only_who_knows_a_silence_takes_a_lock_for_it(machine: Machine) -> None:
    lock = leading()
    assert machine.instance("hk-1").acquire(lock)
    machine.advance(lock.at_most.total_seconds() - 1)
    assert machine.instance("hk-2").acquire(Lock(name=LEADER, at_most=lock.at_most)) is None
    assert machine.instance("hk-3").acquire(lock)


@pytest.mark.parametrize("given_back", [True, False])
def test_a_clock_of_redis_set_back_keeps_no_lock_taken(machine: Machine, given_back: bool) -> None:
    lock = Lock(name="timeout", at_most=LIFE, at_least=timedelta(seconds=0.8))
    held = machine.instance("hk-1").acquire(lock)
    assert held is not None
    if given_back:
        held.release()
    machine.clock.advance(timedelta(hours=-1))
    assert machine.instance("hk-2").acquire(lock)
    with pytest.raises(StepRefused):
        maintenance.expire(machine.scripts, 10, held.fencing_token)


def test_a_holder_that_renews_outlasts_a_clock_of_redis_set_back(machine: Machine) -> None:
    held = machine.instance("hk-1").acquire(LOCK)
    assert held is not None
    machine.clock.advance(timedelta(hours=-1))
    assert held.extend()
    assert machine.instance("hk-2").acquire(LOCK) is None


def test_a_lock_that_is_given_back_while_another_waits_is_taken_by_it(redis_client: Redis) -> None:
    scripts = Scripts(redis_client)
    first = RedisLocks(scripts, "hk-1").acquire(LOCK)
    assert first is not None
    calls = []

    class Counting:
        def tried(self, *arguments: object) -> None:
            calls.append(arguments)

        def held(self, name: str, seconds: float) -> None: ...
        def renewal_failed(self, name: str) -> None: ...
        def lost(self, name: str) -> None: ...

    timer = threading.Timer(0.1, first.release)
    timer.start()
    waiting = RedisLocks(scripts, "hk-2", Counting())
    assert waiting.acquire(Lock(name="unlock", at_most=LIFE, wait=timedelta(seconds=5)))
    timer.join()
    assert len(calls) == 1


def test_the_watchdog_renews_at_a_third_of_the_life(redis_client: Redis) -> None:
    locks = RedisLocks(Scripts(redis_client), "hk-1")
    held = locks.acquire(Lock(name="unlock", at_most=timedelta(seconds=9)))
    assert held is not None
    first = redis_client.hget(keys.lock("unlock"), "until")
    wait_until(lambda: redis_client.hget(keys.lock("unlock"), "until") != first, "it was renewed", 7)
    assert held.trusted
    locks.stop()


def test_a_holder_learns_of_a_forced_unlock_with_the_next_renewal(redis_client: Redis) -> None:
    scripts = Scripts(redis_client)
    locks = RedisLocks(scripts, "hk-1")
    # It would trust a lock that it could not renew for another 12 seconds.
    held = locks.acquire(Lock(name="unlock", at_most=timedelta(seconds=15)))
    assert held is not None
    LockAdmin(scripts).force("unlock", held.fencing_token.token, "me", "a test")
    wait_until(lambda: not held.trusted, "the holder knows", 11)
    locks.stop()


# --- Redis away --------------------------------------------------------------------------------------------------


class Away(Scripts):
    """Redis cannot be asked."""

    def call(self, name: str, *arguments: object) -> object:
        raise ConnectionError("gone")


@pytest.mark.parametrize(("policy", "runs"), [(OnError.SKIP, False), (OnError.RUN, True)])
def test_what_happens_without_redis_is_the_locks_own_policy(redis_client: Redis, policy: OnError, runs: bool) -> None:
    locks = RedisLocks(Away(redis_client), "hk-1")
    held = locks.acquire(Lock(name="unlock", at_most=LIFE, on_error=policy))
    assert (held is not None) is runs
    assert not locks.reachable
    assert held is None or isinstance(held, FreeLock)


def test_a_release_that_cannot_be_told_raises_nothing(redis_client: Redis) -> None:
    scripts = Scripts(redis_client, FakeClock())
    locks = RedisLocks(scripts, "hk-1", monotonic=Ticker())
    held = locks.acquire(LOCK)
    assert held is not None
    locks.scripts = Away(redis_client)
    assert not held.release()


# --- For people --------------------------------------------------------------------------------------------------


def test_a_lock_is_shown_with_its_holder(machine: Machine) -> None:
    desk = LockAdmin(machine.scripts)
    held = machine.instance("hk-1").acquire(LOCK)
    machine.advance(10)
    info = desk.get("unlock")
    assert info is not None
    assert held is not None
    assert (info.owner, info.token, info.fence) == ("hk-1", held.fencing_token.token, held.term)
    assert info.remaining == timedelta(seconds=20)
    assert [each.name for each in desk.all() if each.locked] == ["unlock"]
    assert {each.name for each in desk.all()} == {*lock_names()}
    assert desk.get("nonsense") is None


def test_a_forced_unlock_needs_the_token_that_holds_the_lock_now(machine: Machine) -> None:
    desk = LockAdmin(machine.scripts)
    first = machine.instance("hk-1").acquire(LOCK)
    machine.advance(31)
    second = machine.instance("hk-2").acquire(LOCK)
    assert first is not None
    assert second is not None
    with pytest.raises(LockChanged):
        desk.force("unlock", first.fencing_token.token, "me", "a test")
    assert desk.force("unlock", second.fencing_token.token, "me", "a test") == "hk-2"
    with pytest.raises(LockChanged):
        desk.force("unlock", second.fencing_token.token, "me", "a test")


def test_a_lock_whose_record_lost_its_owner_can_be_taken_away(machine: Machine) -> None:
    desk = LockAdmin(machine.scripts)
    held = machine.instance("hk-1").acquire(LOCK)
    assert held is not None
    machine.scripts.redis.hdel(keys.lock(LOCK.name), "owner")
    assert desk.force(LOCK.name, held.fencing_token.token, "me", "a test") == "?"
    assert machine.instance("hk-2").acquire(LOCK)


def test_a_leader_whose_record_lost_its_owner_can_be_asked_to_step_down(machine: Machine) -> None:
    leading = Lock(name=LEADER, at_most=LIFE)
    assert machine.instance("hk-1").acquire(leading)
    machine.scripts.redis.hdel(keys.lock(LEADER), "owner")
    assert LockAdmin(machine.scripts).step_down("me", "a test") == "?"
    assert machine.instance("hk-2").acquire(leading)


def test_of_fifty_forced_unlocks_at_once_one_succeeds(redis_client: Redis) -> None:
    scripts = Scripts(redis_client)
    held = RedisLocks(scripts, "hk-1").acquire(LOCK)
    assert held is not None

    def force(number: int) -> bool:
        try:
            LockAdmin(scripts).force("unlock", held.fencing_token.token, f"person {number}", "a test")
        except LockChanged:
            return False
        return True

    with ThreadPoolExecutor(50) as pool:
        assert sum(pool.map(force, range(50))) == 1
    [entry], _ = Audit(redis_client).page(10)
    assert "lock unlock of hk-1" in entry.about
    assert (entry.what, entry.detail) == ("unlocked", "a test")


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("name", ["unlock", LEADER])
def test_a_lock_that_a_person_took_was_not_lost(machine: Machine, name: str, taken: bool) -> None:
    held = machine.instance("hk-1").acquire(Lock(name=name, at_most=LIFE))
    assert held is not None
    desk = LockAdmin(machine.scripts)
    if not taken:
        machine.advance(31)
    elif name == LEADER:
        desk.step_down("me", "a test")
    else:
        desk.force(name, held.fencing_token.token, "me", "a test")
    assert machine.instance("hk-2").acquire(Lock(name=name, at_most=LIFE))
    assert not held.extend()
    recently = machine.scripts.now_us() - 600_000_000
    lost = machine.redis.zrange(keys.LOST_LOCKS, recently, "+inf", byscore=True)
    assert list(map(text_or_number, lost)) == ([] if taken else [name])


def test_locks_that_people_took_are_forgotten(machine: Machine) -> None:
    for _ in range(5):
        held = machine.instance("hk-1").acquire(LOCK)
        assert held is not None
        LockAdmin(machine.scripts).force("unlock", held.fencing_token.token, "me", "a test")
        machine.advance(3600)
    assert machine.redis.zcard(keys.LOST_LOCKS) <= 2


def test_a_leader_that_stepped_down_is_kept_out_for_a_while(machine: Machine) -> None:
    desk = LockAdmin(machine.scripts)
    lock = Lock(name="metrics", at_most=timedelta(seconds=60))
    assert machine.instance("hk-1").acquire(lock)
    assert desk.step_down("me", "a test") == "hk-1"
    assert machine.instance("hk-1").acquire(lock) is None
    assert machine.instance("hk-2").acquire(lock)
    machine.redis.delete(keys.lock("metrics"))
    with pytest.raises(LockChanged):
        desk.step_down("me", "nobody leads")


# --- After a crash -----------------------------------------------------------------------------------------------


def test_a_restart_releases_the_locks_of_its_earlier_process_and_of_dead_ones_of_its_machine(
    redis_client: Redis,
) -> None:
    scripts, host = Scripts(redis_client), socket.gethostname()
    owners = {
        "unlock": "hk-1",
        "timeout": f"{host}-4194305",
        "ttl": f"{host}-{os.getpid()}",
        "metrics": "other-4194305",
    }
    for name, owner in {**owners, LEADER: "hk-1"}.items():
        assert RedisLocks(scripts, owner).acquire(Lock(name=name, at_most=LIFE))
    assert LockAdmin(scripts).release_of_dead("hk-1") == ["timeout", "unlock"]
    assert {each.name for each in LockAdmin(scripts).of_housekeeping() if each.locked} == {"ttl", "metrics", LEADER}
    assert RedisLocks(scripts, "hk-1").acquire(LOCK)


def test_the_only_housekeeper_without_a_history_ends_its_registration(
    redis_client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts, given_up = Scripts(redis_client), list[str]()
    monkeypatch.setattr(Unarchived, "give_up", lambda self: given_up.append("given up"))
    for name in ("hk-1", "hk-2", RELAY):
        Presence(scripts).report(name)
    forget_history(Settings(), scripts, "hk-1")
    assert not given_up
    Presence(scripts).withdraw("hk-2")
    forget_history(Settings(), scripts, "hk-1")
    assert len(given_up) == 1
