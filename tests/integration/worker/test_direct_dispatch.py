"""Standing orders: a task that is submitted while a worker is idle goes to it in the same step, with its lease."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from redis import Redis
from redis.client import PubSub

from firmq.shared.domain.limit import Limit
from firmq.shared.domain.task import NewTask, TaskState, new_task_id
from firmq.shared.errors import StoreRefused
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.idempotency import Idempotency, Request
from firmq.shared.stores.limits import Limits
from firmq.shared.stores.queues import Queues
from firmq.shared.stores.tasks import Records
from firmq.worker.engine.claimed_task import ClaimedTask
from firmq.worker.engine.lane_claims import LaneClaims
from firmq.worker.engine.redis_session import ClaimOrder, RedisSession, Report, SyncResult
from firmq.worker.executors.ipc import EndedAttempt
from tests.support.attempt_ends import ENDS
from tests.support.harness import System, answered, wait_until
from tests.support.keys import keys
from tests.support.queue_names import claimed_queues

WEIGHTS = {"normal": 1}
LEASE = 15.0


class Idle:
    """A link with a standing order, and what was published for it."""

    def __init__(self, redis: Redis, name: str, queue: str = "normal") -> None:
        self.redis = redis
        self.scripts = Scripts(redis)
        self.session = RedisSession(self.scripts, name, LEASE)
        self.claims = LaneClaims(name, claimed_queues({queue: 1}))
        self.channel: PubSub = redis.pubsub(ignore_subscribe_messages=True)
        self.channel.subscribe(keys.direct_dispatch(name))
        self.channel.get_message(timeout=60)
        self.claim(4)

    def claim(self, size: int) -> list[ClaimedTask]:
        return self.session.sync([ClaimOrder(self.claims, size)], []).claimed

    def message(self) -> bytes | None:
        found = answered(self.channel)
        return found["data"] if found else None

    def received(self) -> list[ClaimedTask]:
        message = self.message()
        assert message is not None
        return self.session.accept(message, [self.claims]).claimed


@pytest.fixture
def idle(redis_client: Redis) -> Iterator[Idle]:
    idle = Idle(redis_client, "idle")
    yield idle
    idle.channel.close()


def submit(redis: Redis, data: str = "null", count: int = 1) -> list[str]:
    tasks = [NewTask(id=new_task_id(), type="noop", data=data, queue="normal") for _ in range(count)]
    Queues(Scripts(redis), WEIGHTS).submit(tasks)
    return [task.id for task in tasks]


def state(redis: Redis, task_id: str) -> TaskState:
    return Records(Scripts(redis), list(WEIGHTS)).state(task_id)


def test_a_task_for_an_idle_worker_is_running_when_its_submission_is_answered(idle: Idle, redis_client: Redis) -> None:
    [task_id] = submit(redis_client)
    assert state(redis_client, task_id) is TaskState.RUNNING
    assert redis_client.zscore(keys.LEASES, task_id)
    assert redis_client.llen(keys.wakeup("normal")) == 0


CORRUPT = '{"worker":"w","token":"t","lease":"x","room":1,"takes":{"normal":true},"kind":"","patterns":""}'


@pytest.mark.parametrize("order", ["{", "1", "[]", "{}", CORRUPT, None])
def test_a_corrupt_parked_claim_is_dropped(idle: Idle, redis_client: Redis, order: str | None) -> None:
    if order is None:
        redis_client.delete(keys.parked_claim("idle"))
        redis_client.rpush(keys.parked_claim("idle"), "a list")
    else:
        redis_client.set(keys.parked_claim("idle"), order)
    [task_id] = submit(redis_client)
    assert state(redis_client, task_id) is TaskState.PENDING
    assert redis_client.zcard(keys.TASKS) == redis_client.llen(keys.rq_queue("normal")) == 1
    assert redis_client.zcard(keys.PARKED_CLAIMS) == 0


def test_what_is_handed_over_is_what_a_claim_would_have_brought(idle: Idle, redis_client: Redis) -> None:
    data = '"ünï\\u0000code / \\" 漢字"'
    [task_id] = submit(redis_client, data)
    [dispatched] = idle.received()
    fields = ("queue", "type", "data", "attempt", "failures", "crashes", "losses", "timeout", "retry", "meta")
    idle.session.releases.append(dispatched)
    idle.session.sync([], [])
    [claimed] = idle.claim(1)
    assert dispatched.id == claimed.id == task_id.encode()
    assert [getattr(dispatched, each) for each in fields if each != "attempt"] == [
        getattr(claimed, each) for each in fields if each != "attempt"
    ]
    assert abs(dispatched.enqueued_us - claimed.enqueued_us) < 1_000_000
    assert dispatched.lease_until <= claimed.lease_until


def test_its_outcome_is_reported_under_the_lease_that_came_with_it(idle: Idle, redis_client: Redis) -> None:
    [task_id] = submit(redis_client)
    [dispatched] = idle.received()
    end = EndedAttempt(*ENDS["completed"], b'{"outcome":"completed"}', result=b"bnVsbA==")
    idle.session.report(Report(dispatched, end))
    assert not idle.session.sync([], []).refused
    assert state(redis_client, task_id) is TaskState.COMPLETED


def test_a_worker_that_misses_the_handover_gets_the_same_task_when_it_asks(idle: Idle, redis_client: Redis) -> None:
    [task_id] = submit(redis_client)
    missed = idle.message()
    assert missed is not None
    assert [held.id.decode() for held in idle.claim(4)] == [task_id]
    assert idle.session.accept(missed, [idle.claims]).claimed == [], "what came late counts no second time"


def test_what_a_lost_answer_brought_is_not_forgotten_for_what_is_handed_over_meanwhile(
    idle: Idle, redis_client: Redis
) -> None:
    redis_client.zrem(keys.PARKED_CLAIMS, "idle")
    [first] = submit(redis_client)
    idle.scripts.call("claim", *idle.claims.arguments(4, int(LEASE * 1_000_000)))  # the answer is lost
    [second] = submit(redis_client)
    message = idle.message()
    assert message is not None
    assert idle.session.accept(message, [idle.claims]).claimed == [], "it answers a claim that is not next yet"
    assert [held.id.decode() for held in idle.claim(4)] == [first]
    assert [held.id.decode() for held in idle.claim(4)] == [second]


def test_a_full_redis_takes_no_task_for_an_idle_worker_either(idle: Idle, redis_client: Redis) -> None:
    redis_client.config_set("maxmemory", "1mb")
    try:
        with pytest.raises(StoreRefused):
            submit(redis_client)
    finally:
        redis_client.config_set("maxmemory", "0")
    assert redis_client.zcard(keys.PARKED_CLAIMS) == 1


def test_a_worker_of_other_queues_stays_idle_and_the_next_one_gets_it(redis_client: Redis) -> None:
    other, right = Idle(redis_client, "other", "low"), Idle(redis_client, "right")
    [task_id] = submit(redis_client)
    assert [held.id.decode() for held in right.received()] == [task_id]
    assert redis_client.zrange(keys.PARKED_CLAIMS, 0, -1) == [b"other"]
    other.channel.close()
    right.channel.close()


def test_a_worker_that_slept_does_not_trust_a_lease_that_began_long_ago(idle: Idle, redis_client: Redis) -> None:
    [task_id] = submit(redis_client)
    message = idle.message()
    assert message is not None
    idle.claims.asked_at -= LEASE / 2
    assert idle.session.accept(message, [idle.claims]).claimed == []
    assert [held.id.decode() for held in idle.claim(4)] == [task_id]


def test_a_draining_worker_asks_for_what_was_handed_over_and_takes_nothing_new(idle: Idle, redis_client: Redis) -> None:
    [dispatched] = submit(redis_client)
    [waiting] = submit(redis_client)
    assert [held.id.decode() for held in idle.claim(0)] == [dispatched]
    assert state(redis_client, waiting) is TaskState.PENDING


def test_a_drained_worker_has_no_standing_order_left(idle: Idle, redis_client: Redis) -> None:
    idle.claim(0)
    [task_id] = submit(redis_client)
    assert state(redis_client, task_id) is TaskState.PENDING
    assert redis_client.llen(keys.wakeup("normal")) == 1


def test_a_worker_that_is_gone_is_passed_over(redis_client: Redis) -> None:
    gone, listening = Idle(redis_client, "gone"), Idle(redis_client, "listening")
    gone.channel.close()
    wait_until(lambda: redis_client.pubsub_numsub(keys.direct_dispatch("gone"))[0][1] == 0, "Redis knows")
    [task_id] = submit(redis_client)
    assert [held.id.decode() for held in listening.received()] == [task_id]
    listening.channel.close()
    [next_id] = submit(redis_client)
    assert state(redis_client, next_id) is TaskState.PENDING


def test_the_worker_that_is_idle_longest_gets_the_next_task(idle: Idle, redis_client: Redis) -> None:
    other = Idle(redis_client, "other")
    first, second = submit(redis_client) + submit(redis_client)
    assert [held.id.decode() for held in idle.received()] == [first]
    assert [held.id.decode() for held in other.received()] == [second]
    other.channel.close()


def test_a_paused_queue_is_not_handed_over(idle: Idle, redis_client: Redis) -> None:
    queues = Queues(Scripts(redis_client), WEIGHTS)
    queues.pause("normal", "maintenance")
    [task_id] = submit(redis_client)
    assert state(redis_client, task_id) is TaskState.PENDING
    assert redis_client.zcard(keys.PARKED_CLAIMS) == 1


def submit_with_key(redis: Redis, key: str) -> tuple[str, bool]:
    """A task as the client sends it; its id, and whether it was there before."""
    task = NewTask(id=new_task_id(), type="noop", data="null", queue="normal")
    request = Request.of("", key, "/tasks", b"{}")
    stored, again = Idempotency(Scripts(redis), timedelta(hours=1)).submit(request, task)
    return stored.id, again


def test_a_task_with_the_key_of_a_request_is_handed_over_too_and_once(idle: Idle, redis_client: Redis) -> None:
    task_id, again = submit_with_key(redis_client, "k")
    assert state(redis_client, task_id) is TaskState.RUNNING
    assert not again
    assert submit_with_key(redis_client, "k") == (task_id, True)
    assert [held.id.decode() for held in idle.received()] == [task_id]
    assert redis_client.zcard(keys.TASKS) == 1


@pytest.mark.parametrize("with_key", [False, True])
def test_limits_of_other_types_are_not_in_the_way_of_a_handover(
    idle: Idle, redis_client: Redis, with_key: bool
) -> None:
    limits = Limits(Scripts(redis_client))
    limits.put("type:another", Limit(concurrency=1))
    task_id = submit_with_key(redis_client, "1")[0] if with_key else submit(redis_client)[0]
    assert state(redis_client, task_id) is TaskState.RUNNING
    idle.received()
    idle.claim(4)
    limits.put("type:noop", Limit(concurrency=1))
    for key in ("2", "3"):
        task_id = submit_with_key(redis_client, key)[0] if with_key else submit(redis_client)[0]
        assert state(redis_client, task_id) is TaskState.PENDING


def test_many_at_once_wake_everybody_instead(idle: Idle, redis_client: Redis) -> None:
    submit(redis_client, count=50)
    assert idle.message() is None
    assert redis_client.llen(keys.wakeup("normal")) == 50


def test_an_idle_worker_runs_one_task_after_the_other_without_asking(system: System) -> None:
    system.start_worker(WORKER_EXECUTORS="1")
    for _ in range(20):
        wait_until(lambda: system.redis.zcard(keys.PARKED_CLAIMS) == 2, "both lanes of the worker are idle")
        task_id = system.submit("noop")
        assert system.records.state(task_id) is not TaskState.PENDING
        system.ended(task_id)


def test_a_worker_whose_connections_were_cut_is_handed_tasks_again(system: System) -> None:
    system.start_worker(WORKER_EXECUTORS="1")
    wait_until(lambda: system.redis.zcard(keys.PARKED_CLAIMS) == 2, "both lanes of the worker are idle")
    for kind in ("pubsub", "normal"):
        system.redis.client_kill_filter(_type=kind, skipme=True)
    system.ended(system.submit("noop"))

    def handed_over() -> bool:
        task_id = system.submit("noop")
        running = system.records.state(task_id) is not TaskState.PENDING
        system.ended(task_id)
        return running

    wait_until(handed_over, "it listens again")


@pytest.mark.parametrize("said", [b"\xff\xff", b"garbage", b"[1,2,3]", b'["x",[]]', b"{}", b"[" * 100_000])
def test_foreign_messages_are_ignored(idle: Idle, said: bytes) -> None:
    assert idle.session.accept(said, [idle.claims]) == SyncResult()
    [task_id] = submit(idle.redis)
    assert [held.id.decode() for held in idle.received()] == [task_id]
