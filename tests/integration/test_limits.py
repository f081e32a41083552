"""Limits and turns of tenants, script by script: who may start, who stands aside, and that nobody is forgotten."""

from __future__ import annotations

import itertools
from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from redis import Redis

from shared import keys
from shared.clock import FakeClock
from shared.limits import Limit, Limits, read_limit
from shared.queues import Queues
from shared.records import Filter, Records
from shared.redis_client import text
from shared.scripts import Scripts
from shared.settings import Settings
from shared.tasks import NewTask, TaskState, new_task_id
from tests.integration.test_scripts import LEASE, SECOND, Store
from worker.main import Heartbeat

WEIGHTS = {"high": 4, "normal": 3}
CLAIMS = itertools.count()


@pytest.fixture
def store(redis_client: Redis) -> Store:
    clock = FakeClock()
    scripts = Scripts(redis_client, clock)
    return Store(redis_client, clock, scripts, Queues(scripts, WEIGHTS), Records(scripts, list(WEIGHTS)))


@pytest.fixture
def limits(store: Store) -> Limits:
    return Limits(store.scripts)


def submit(store: Store, task_type: str = "noop", count: int = 1, queue: str = "normal", **options: Any) -> list[str]:
    tasks = [NewTask(id=new_task_id(), type=task_type, data="null", queue=queue, **options) for _ in range(count)]
    store.queues.submit(tasks)
    store.clock.advance(timedelta(milliseconds=1))
    return [task.id for task in tasks]


def claim(store: Store, want: int = 10) -> list[str]:
    store.clock.advance(timedelta(milliseconds=1))
    return store.claim(want, token=f"c{next(CLAIMS)}")


def token_of(store: Store, task_id: str) -> str:
    return text(store.redis.hget(keys.rq_job(task_id), "token"))


def end(store: Store, task_id: str, kind: str = "completed", delay: int = 0) -> None:
    assert store.report(task_id, kind, token_of(store, task_id), delay) == 1


def running_under(store: Store, limit: str) -> set[str]:
    return {text(each) for each in store.redis.smembers(keys.slots(limit))}


def waits_aside(store: Store, queue: str = "normal") -> int:
    return int(store.redis.zcard(keys.aside(queue)))


# --- how many at once ---


def test_no_more_than_the_limit_run_at_once_and_others_pass_them(store: Store, limits: Limits) -> None:
    limits.put("type:slow", read_limit({"concurrency": 2}))
    slow, fast = submit(store, "slow", 5), submit(store, "fast", 3)
    assert claim(store) == [*slow[:2], *fast]
    assert claim(store) == []
    assert waits_aside(store) == 3


def test_whose_slot_is_freed_the_next_in_line_takes(store: Store, limits: Limits) -> None:
    limits.put("type:slow", read_limit({"concurrency": 1}))
    first, second, third = submit(store, "slow", 3)
    claim(store)
    for kind, after in (("completed", second), ("failed", third)):
        end(store, first if after == second else second, kind)
        assert claim(store) == [after]


@pytest.mark.parametrize("kind", ["completed", "failed", "retrying", "crashed", "poisoned", "cancelled", "interrupted"])
def test_every_end_of_an_attempt_frees_its_slot(store: Store, limits: Limits, kind: str) -> None:
    limits.put("type:slow", read_limit({"concurrency": 1}))
    [task] = submit(store, "slow")
    claim(store)
    end(store, task, kind)
    assert running_under(store, "type:slow") == set()


def test_a_report_sent_twice_frees_one_slot(store: Store, limits: Limits) -> None:
    limits.put("type:slow", read_limit({"concurrency": 2}))
    first, second, *_ = submit(store, "slow", 5)
    claim(store)
    for _ in range(2):
        assert store.report(first, "completed", token_of(store, first)) == 1
    assert running_under(store, "type:slow") == {second}


def test_a_lost_lease_frees_its_slot_once(store: Store, limits: Limits) -> None:
    limits.put("type:slow", read_limit({"concurrency": 1}))
    first, _ = submit(store, "slow", 2)
    claim(store)
    store.clock.advance(timedelta(microseconds=LEASE + 1))
    assert len(store.scripts.reap(10, 3)) == 1
    assert store.scripts.reap(10, 3) == []
    assert claim(store) == [first], "it was first, and is first again"
    assert running_under(store, "type:slow") == {first}


def test_given_back_it_frees_its_slot_and_its_token(store: Store, limits: Limits) -> None:
    limits.put("type:slow", read_limit({"concurrency": 1, "rate": "1/h"}))
    first, _ = submit(store, "slow", 2)
    claim(store)
    store.scripts.call("release", first, token_of(store, first), 1)
    assert claim(store) == [first]


def test_a_key_is_limited_over_all_types(store: Store, limits: Limits) -> None:
    limits.put("key:partner", read_limit({"concurrency": 1}))
    one = submit(store, "a", limit_key="partner")
    submit(store, "b", limit_key="partner")
    other = submit(store, "b", limit_key="somebody-else")
    assert claim(store) == [*one, *other]


def test_who_is_under_two_limits_needs_both(store: Store, limits: Limits) -> None:
    limits.put("key:partner", read_limit({"concurrency": 1}))
    limits.put("type:a", read_limit({"concurrency": 2}))
    first, second, third = submit(store, "a", 3, limit_key="partner")
    [other] = submit(store, "a")
    assert claim(store) == [first, other]
    end(store, first)
    assert claim(store) == [second]
    end(store, other)
    assert claim(store) == [], "the key is taken"
    end(store, second)
    assert claim(store) == [third]


def test_a_claim_sent_again_takes_no_more_slots(store: Store, limits: Limits) -> None:
    limits.put("type:slow", read_limit({"concurrency": 2}))
    submit(store, "slow", 5)
    assert store.claim(10, token="same") == store.claim(10, token="same")
    assert len(running_under(store, "type:slow")) == 2


def test_a_hundred_thousandth_in_line_costs_others_nothing(store: Store, limits: Limits) -> None:
    limits.put("type:slow", read_limit({"concurrency": 1}))
    submit(store, "slow", 2)
    claim(store)
    submit(store, "slow", 2000)
    assert store.redis.llen(keys.rq_queue("normal")) == 0, "they stand aside from the beginning"
    fast = submit(store, "fast", 1)
    assert claim(store, 1) == fast


# --- how many in a time ---


def test_tokens_come_steadily_and_the_claim_says_when(store: Store, limits: Limits) -> None:
    limits.put("type:mail", read_limit({"rate": "2/s", "burst": 1}))
    submit(store, "mail", 4)
    reply = store.scripts.call("claim", "w", "x", LEASE, 10, 1 << 20, "normal", 10)
    assert (len(reply[3]), reply[4]) == (1, SECOND // 2)
    store.clock.advance(timedelta(seconds=0.498))
    assert claim(store) == []
    assert len(claim(store)) == 1
    store.clock.advance(timedelta(seconds=10))
    assert len(claim(store)) == 1, "a pause saves up no more than the burst"


def test_over_a_minute_the_rate_is_met(store: Store, limits: Limits) -> None:
    limits.put("type:mail", read_limit({"rate": "10/s", "burst": 1}))
    submit(store, "mail", 800)
    started = 0
    for _ in range(600):
        started += len(claim(store))
        store.clock.advance(timedelta(seconds=0.1))
    assert started == 600


def test_the_bucket_goes_by_itself(store: Store, limits: Limits) -> None:
    limits.put("type:mail", read_limit({"rate": "1/m"}))
    submit(store, "mail")
    claim(store)
    assert 60_000 < store.redis.pttl(keys.bucket("type:mail")) <= 61_000


# --- changed while it runs ---


def test_who_runs_already_counts_when_a_limit_is_set(store: Store, limits: Limits) -> None:
    early = submit(store, "slow", 3)
    claim(store)
    limits.put("type:slow", read_limit({"concurrency": 2}))
    later = submit(store, "slow", 1)
    assert running_under(store, "type:slow") == set(early)
    for task in early[:2]:
        assert claim(store) == []
        end(store, task)
    assert claim(store) == later


def test_a_limit_is_raised_and_lowered_at_once(store: Store, limits: Limits) -> None:
    limits.put("type:slow", read_limit({"concurrency": 1}))
    submit(store, "slow", 10)
    assert len(claim(store)) == 1
    limits.put("type:slow", read_limit({"concurrency": 4}))
    assert len(claim(store)) == 3
    limits.put("type:slow", read_limit({"concurrency": 0}))
    for task in running_under(store, "type:slow"):
        end(store, task)
    assert claim(store) == []


def test_without_its_limit_a_line_is_taken_in_order(store: Store, limits: Limits) -> None:
    limits.put("type:slow", read_limit({"concurrency": 1}))
    tasks = submit(store, "slow", 5)
    claim(store)
    assert limits.delete("type:slow")
    assert claim(store) == tasks[1:]
    claim(store)
    for left in ("limits*", "slots:*", "line:*", "turns:*", "aside:*"):
        assert store.redis.keys(f"taskqueue:{left}") == []


def test_what_is_set_by_hand_stands_above_what_is_declared(store: Store, limits: Limits) -> None:
    declared = {"type:slow": read_limit({"concurrency": 5})}
    limits.declare(declared, {})
    limits.put("type:slow", read_limit({"concurrency": 1}), by="ann")
    limits.declare(declared, {"key:x": read_limit({"rate": "5/m"})})
    [of_key, of_type] = limits.all()
    assert (of_type.limit.concurrency, of_type.source, of_type.by) == (1, "api", "ann")
    assert (of_key.limit.rate, of_key.source) == ("5/m", "settings")
    limits.delete("type:slow")
    found = limits.get("type:slow")
    assert found
    assert (found.limit.concurrency, found.source) == (5, "handler")
    limits.declare({"type:slow": None}, {})
    assert limits.get("type:slow") is None


def test_of_two_versions_the_one_that_started_last_has_its_way(store: Store, limits: Limits) -> None:
    old, new = (
        {"type:slow": Limit(concurrency=5), "type:free": None},
        {"type:slow": None, "type:free": Limit(concurrency=1)},
    )
    assert limits.declare(old, {}) == {}
    assert limits.declare(new, {}) == {}
    for _ in range(2):
        assert limits.declare(old, {}, first=False) == {"type:slow": Limit(), "type:free": Limit(concurrency=1)}
        assert limits.declare(new, {}, first=False) == {}
        assert [(each.name, each.limit.concurrency) for each in limits.all()] == [("type:free", 1)]
    limits.delete("type:free")
    limits.declare(new, {}, first=False)
    assert limits.get("type:free"), "removed by hand, it comes back with a sign of life"
    store.redis.delete(keys.LIMITS, keys.LIMITS_DECLARED)
    limits.declare(new, {}, first=False)
    assert limits.get("type:free"), "it is there again when Redis came back empty"


def test_a_worker_whose_limits_do_not_hold_says_so_once(limits: Limits, caplog: pytest.LogCaptureFixture) -> None:
    def worker(concurrency: int) -> Heartbeat:
        engine: Any = SimpleNamespace(settings=Settings(task_limits={"type:slow": {"concurrency": concurrency}}))
        nobody: Any = None
        started = datetime.now(UTC)
        return Heartbeat(engine=engine, name="w", workers=nobody, types=nobody, limits=limits, started_at=started)

    older, newer = worker(5), worker(10)
    for _ in range(3):
        for each in (older, newer):
            each._declare([])
            each.published = True
    found = limits.get("type:slow")
    assert found
    assert found.limit.concurrency == 10
    assert [record.message for record in caplog.records] == [
        "limit type:slow: a worker that started later declares concurrency 10, and that holds"
    ]


def test_a_limit_tells_who_runs_and_who_waits(store: Store, limits: Limits) -> None:
    limits.put("type:mail", read_limit({"concurrency": 2, "rate": "3/s", "burst": 3}))
    submit(store, "mail", 7, fair_key="a")
    claim(store)
    claim(store)
    [state] = limits.all()
    assert (state.running, state.waiting, state.next_at) == (2, 5, None)
    assert state.tokens == pytest.approx(1.0, abs=0.1)


# --- turns of tenants ---


def test_tenants_take_turns_within_a_priority(store: Store) -> None:
    ann, bob = submit(store, count=6, fair_key="ann"), submit(store, count=2, fair_key="bob")
    assert claim(store, 6) == [ann[0], bob[0], ann[1], bob[1], ann[2], ann[3]]


def test_who_comes_late_does_not_wait_behind_hundreds(store: Store) -> None:
    ann = submit(store, count=200, fair_key="ann")  # one step: the clock stands still between steps
    assert claim(store, 10) == ann[:10]
    [bob] = submit(store, fair_key="bob")
    assert bob in claim(store, 2)


def test_tasks_without_a_tenant_are_one_tenant_together(store: Store) -> None:
    ann, plain = submit(store, count=4, fair_key="ann"), submit(store, count=4)
    assert Counter(each in ann for each in claim(store, 4)) == {True: 2, False: 2}
    assert set(claim(store)) | set(ann[:2]) | set(plain[:2]) >= {*ann, *plain}


def test_a_higher_priority_is_no_matter_of_turns(store: Store) -> None:
    low = submit(store, count=2, fair_key="ann")
    high = submit(store, count=2, queue="high", fair_key="ann")
    reply = store.scripts.call("claim", "w", "x", LEASE, 4, 1 << 20, "high", 4, "normal", 0)
    assert [row[0].decode() for row in reply[3]] == [*high, *low]


def test_tenants_take_turns_in_the_line_of_a_limit_too(store: Store, limits: Limits) -> None:
    limits.put("type:slow", read_limit({"concurrency": 1}))
    ann, bob = submit(store, "slow", 3, fair_key="ann"), submit(store, "slow", 2, fair_key="bob")
    order = []
    for _ in range(5):
        [task] = claim(store)
        order.append("ann" if task in ann else "bob")
        end(store, task)
    assert order == ["ann", "bob", "ann", "bob", "ann"]
    assert bob


def test_when_nobody_waits_nothing_is_left_of_the_turns(store: Store) -> None:
    submit(store, count=3, fair_key="ann")
    submit(store, count=2)
    assert len(claim(store)) == 5
    claim(store)
    assert not store.redis.exists(keys.FAIR, keys.turns("normal|"), keys.aside("normal"), "rq:deferred:normal")


# --- the rest of the system knows those who stand aside ---


@pytest.fixture
def aside(store: Store, limits: Limits) -> str:
    """A task that stands aside because another one runs."""
    limits.put("type:slow", read_limit({"concurrency": 1}))
    _, task = submit(store, "slow", 2, expires_in=timedelta(hours=1))
    claim(store)
    assert waits_aside(store) == 1
    return task


def nowhere(store: Store, task_id: str) -> bool:
    """No line, no list and no index of ours or RQ's leads to it but that of its final state."""
    lines = [text(key) for key in store.redis.keys("taskqueue:line:*")]
    indexes = [keys.aside("normal"), keys.pending("normal"), "rq:deferred:normal", *lines]
    return not any(store.redis.zscore(key, task_id) is not None for key in indexes)


def test_it_is_pending_and_counted_listed_and_shown_with_what_it_waits_for(store: Store, aside: str) -> None:
    [_, info] = store.queues.overview()
    assert (info.pending, info.aside) == (1, 1)
    assert info.oldest_at is not None
    assert store.records.counts()[TaskState.PENDING] == 1
    page = store.records.page(Filter(state=TaskState.PENDING), limit=10)
    assert [item.id for item in page.items] == [aside]
    assert store.records.get(aside).aside_for == "type:slow"


def test_for_rq_it_is_deferred(store: Store, aside: str) -> None:
    from rq.job import Job
    from rq.registry import DeferredJobRegistry
    from rq.serializers import JSONSerializer

    registry = DeferredJobRegistry("normal", connection=store.redis, serializer=JSONSerializer)
    assert registry.get_job_ids(cleanup=False) == [aside]
    assert Job.fetch(aside, connection=store.redis, serializer=JSONSerializer).get_status() == "deferred"


def test_it_can_be_cancelled(store: Store, aside: str) -> None:
    store.queues.cancel(aside, "")
    assert nowhere(store, aside)
    assert claim(store) == []


def test_it_expires(store: Store, aside: str) -> None:
    store.clock.advance(timedelta(hours=2))
    assert store.scripts.expire(10) == 1
    assert store.state(aside) is TaskState.EXPIRED
    assert nowhere(store, aside)


def test_it_counts_against_the_length_of_its_queue(store: Store, aside: str) -> None:
    full = Queues(store.scripts, WEIGHTS, max_length=1)
    [answer] = full.submit([NewTask(id=new_task_id(), type="fast", data="null", queue="normal")])
    assert answer.full


def test_a_paused_queue_keeps_its_lines(store: Store, limits: Limits, aside: str) -> None:
    store.queues.pause("normal", "lunch")
    limits.delete("type:slow")
    assert claim(store) == []
    store.queues.resume("normal")
    assert claim(store) == [aside]


def test_recovery_leaves_it_where_it_is(store: Store, aside: str) -> None:
    store.clock.advance(timedelta(minutes=5))
    assert store.scripts.recover("normal", SECOND, 100) == 0
    assert survey(store) == {}
    assert store.redis.llen(keys.rq_queue("normal")) == 0


def survey(store: Store) -> dict[str, int]:
    from shared.locks import Permit

    wrong: Counter[str] = Counter()
    for _ in range(20):
        wrong.update(store.scripts.survey(list(WEIGHTS), LEASE, 100, Permit())[1])
    return dict(wrong)


@pytest.mark.parametrize(
    "damage", ["line", "turns", "due", "aside", "rq"], ids=["line", "turns", "due", "aside", "everything of rq"]
)
def test_whatever_is_lost_of_a_line_recovery_brings_its_tasks_back(
    store: Store, limits: Limits, aside: str, damage: str
) -> None:
    gone = {
        "line": [text(key) for key in store.redis.keys("taskqueue:line:*")],
        "turns": [text(key) for key in store.redis.keys("taskqueue:turns:*")],
        "due": [keys.LIMITS_DUE],
        "aside": [keys.aside("normal")],
        "rq": ["rq:queue:normal", "rq:deferred:normal", "rq:queues"],
    }[damage]
    store.redis.delete(*gone)
    survey(store)
    limits.put("type:slow", read_limit({"concurrency": 5}))
    assert claim(store) == [aside]
    assert nowhere(store, aside)


def test_a_slot_without_a_task_is_found_and_freed(store: Store, limits: Limits) -> None:
    limits.put("type:slow", read_limit({"concurrency": 2}))
    [running] = submit(store, "slow")
    [ended] = submit(store, "slow")
    claim(store)
    end(store, ended)
    store.redis.sadd(keys.slots("type:slow"), ended)
    store.redis.srem(keys.slots("type:slow"), running)
    assert survey(store) == {"slot": 2}
    assert running_under(store, "type:slow") == {running}


def test_a_unique_key_without_a_task_is_found_and_freed(store: Store) -> None:
    store.redis.hset(keys.UNIQUE, "noop:k", "gone")
    assert survey(store) == {"unique_key": 1}
    assert not store.redis.exists(keys.UNIQUE)


# --- anything in any order ---

MOST = {"type:a": 2, "type:b": 3, "key:x": 1, "key:y": 4}


class Turmoil:
    """A system to which anything happens in any order."""

    def __init__(self, store: Store, random: Random) -> None:
        self.store = store
        self.random = random

    def running(self) -> list[str]:
        return [text(each) for each in self.store.redis.zrange(keys.LEASES, 0, -1)]

    def some_running(self, most: int) -> list[str]:
        running = self.running()
        return self.random.sample(running, min(most, len(running)))

    def put_in(self) -> None:
        submit(
            self.store,
            self.random.choice("abcd"),
            self.random.randint(1, 4),
            self.random.choice(["high", "normal"]),
            limit_key=self.random.choice([None, "x", "y"]),
            fair_key=self.random.choice([None, None, "ann", "bob"]),
        )

    def take(self) -> None:
        claim(self.store, self.random.randint(1, 5))

    def finish(self) -> None:
        for task in self.some_running(3):
            kind = self.random.choice(["completed", "failed", "retrying", "interrupted"])
            end(self.store, task, kind, delay=50_000)

    def let_die(self) -> None:
        self.store.clock.advance(timedelta(microseconds=LEASE))
        self.store.scripts.reap(10, 3)

    def give_back(self) -> None:
        for task in self.some_running(2):
            self.store.scripts.call("release", task, token_of(self.store, task), "")

    def cancel(self) -> None:
        for queue in WEIGHTS:
            for task in self.store.redis.zrange(keys.aside(queue), 0, 0):
                self.store.queues.cancel(text(task), "")

    def move_due(self) -> None:
        self.store.clock.advance(timedelta(seconds=0.1))
        for queue in WEIGHTS:
            self.store.scripts.promote(queue, 10)

    def anything(self) -> None:
        self.random.choice(
            [self.put_in, self.put_in, self.take, self.finish, self.let_die, self.give_back, self.cancel, self.move_due]
        )()

    def unended(self) -> int:
        return sum(count for state, count in self.store.records.counts().items() if not state.ended)

    def check(self) -> None:
        """The slots are those of who runs, and no more than there are."""
        real: Counter[str] = Counter()
        for task in self.running():
            kind, key = self.store.redis.hmget(keys.rq_job(task), ["description", "limit_key"])
            real[f"type:{text(kind)}"] += 1
            if key:
                real[f"key:{text(key)}"] += 1
        for name, most in MOST.items():
            assert real[name] == self.store.redis.scard(keys.slots(name)) <= most, name


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_no_limit_is_exceeded_and_nobody_is_forgotten(store: Store, limits: Limits, seed: int) -> None:
    for name, concurrency in MOST.items():
        limits.put(name, read_limit({"concurrency": concurrency}))
    limits.put("type:c", read_limit({"rate": "20/s", "burst": 2}))
    turmoil = Turmoil(store, Random(seed))
    for _ in range(150):
        turmoil.anything()
        turmoil.check()
    for _ in range(2000):
        claim(store, 20)
        turmoil.check()
        for task in turmoil.running():
            end(store, task)
        turmoil.move_due()
        if not turmoil.unended():
            break
    assert turmoil.unended() == 0
    claim(store)
    for left in ("aside:*", "pending:*", "line:*", "slots:*", "limits:due", "fair"):
        assert store.redis.keys(f"taskqueue:{left}") == [], left
    assert store.redis.keys("rq:deferred:*") == []
