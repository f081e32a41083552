"""A worker takes from queues that match its patterns, also from those that its claims do not name yet."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from redis import Redis
from redis.client import PubSub

from firmq.shared.domain.limit import Limit
from firmq.shared.domain.queue_selection import QueueSelection
from firmq.shared.domain.task import NewTask, new_task_id
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.limits import Limits
from firmq.shared.stores.queues import Queues
from firmq.worker.engine.claimed_queues import ClaimedQueues
from firmq.worker.engine.lane_claims import LaneClaims
from firmq.worker.engine.redis_session import ClaimOrder, RedisSession
from tests.support.harness import answered
from tests.support.keys import keys

QUEUES = {"normal": 3}
LEASE = 10.0


class Worker:
    """A worker's conversation with Redis, with these entries of WORKER_QUEUES."""

    def __init__(self, redis: Redis, name: str, entries: Mapping[str, int | None]) -> None:
        self.queues = ClaimedQueues(QueueSelection(entries, QUEUES, "normal"))
        self.claims = LaneClaims(name, self.queues)
        self.session = RedisSession(Scripts(redis), name, LEASE)
        self.channel: PubSub = redis.pubsub(ignore_subscribe_messages=True)
        self.channel.subscribe(keys.direct_dispatch(name))
        self.channel.get_message(timeout=60)

    def claim(self, size: int = 10, slots: Mapping[str, int] | None = None) -> list[str]:
        result = self.session.sync([ClaimOrder(self.claims, size, slots or {})], [])
        return [each.id.decode() for each in result.claimed]

    def dispatched(self) -> list[str]:
        message = answered(self.channel)
        found = self.session.accept(message["data"], [self.claims]).claimed if message else []
        return [each.id.decode() for each in found]


@pytest.fixture
def queues(redis_client: Redis) -> Queues:
    return Queues(Scripts(redis_client), QUEUES)


def submit(queues: Queues, queue: str, count: int = 1, **more: object) -> list[str]:
    tasks = [NewTask(id=new_task_id(), type="noop", data="null", queue=queue, **more) for _ in range(count)]  # type: ignore[arg-type]
    queues.submit(tasks)
    return [task.id for task in tasks]


@pytest.fixture
def gpu(redis_client: Redis) -> Worker:
    return Worker(redis_client, "gpu", {"gpu-*": None, "normal": None})


def test_a_claim_with_room_takes_from_matching_queues_that_it_does_not_name(queues: Queues, gpu: Worker) -> None:
    mine, _ = submit(queues, "gpu-1", 2), submit(queues, "mail", 2)
    assert gpu.claim() == mine
    assert "gpu-1" in gpu.queues.active


def test_the_first_task_of_a_new_queue_is_dispatched_to_an_idle_worker(queues: Queues, gpu: Worker) -> None:
    assert gpu.claim() == []
    assert gpu.dispatched() == []
    submit(queues, "mail")
    assert gpu.dispatched() == []
    task = submit(queues, "gpu-1")
    assert gpu.dispatched() == task


def test_a_full_queue_is_not_taken_by_its_pattern(redis_client: Redis, queues: Queues) -> None:
    bounded = QueueSelection({"*": None}, QUEUES, "normal", bounded=["gpu-1"])
    worker = Worker(redis_client, "w", {"*": None})
    worker.queues.selection = bounded
    worker.queues.known = worker.queues.active = bounded.names
    submit(queues, "gpu-1")
    assert worker.claim(slots={"gpu-1": 0}) == []
    redis_client.delete(keys.rq_queue("gpu-1"))
    submit(queues, "gpu-1")
    assert worker.dispatched() == []
    task = submit(queues, "gpu-2")
    assert worker.dispatched() == task


def test_idle_workers_are_told_of_a_new_queue_that_was_not_dispatched(
    queues: Queues, gpu: Worker, redis_client: Redis
) -> None:
    gpu.claim()
    many = submit(queues, "gpu-1", 3)  # the script for many tasks dispatches none
    assert redis_client.lrange(keys.control("gpu"), 0, -1) == [b"look"]
    assert gpu.claim() == many
    gpu.queues.look_soon()
    submit(queues, "gpu-2", 2)
    gpu.claim(1)
    assert set(gpu.queues.known) == {"normal", "gpu-1", "gpu-2"}


def test_a_busy_worker_notices_a_new_queue_and_divides_its_claims(queues: Queues, gpu: Worker) -> None:
    submit(queues, "normal", 50)
    gpu.claim(2)
    mine = submit(queues, "gpu-1", 50)
    gpu.queues.look_soon()
    gpu.claim(2)  # learns of it
    taken = gpu.claim(20)
    assert len(set(taken) & set(mine)) == 10


def test_a_paused_queue_is_not_taken_by_a_pattern(queues: Queues, gpu: Worker) -> None:
    submit(queues, "gpu-1", 2)
    queues.pause("gpu-1", "maintenance")
    assert gpu.claim() == []
    queues.resume("gpu-1")
    assert len(gpu.claim()) == 2


def test_throttled_tasks_of_an_unnamed_queue_are_taken_when_it_is_seen(queues: Queues, gpu: Worker) -> None:
    tasks = submit(queues, "gpu-1", 2, fair_key="tenant")
    gpu.queues.look_soon()
    gpu.claim()
    assert set(gpu.claim()) == set(tasks)


def test_a_limit_holds_in_a_queue_that_a_claim_does_not_name(queues: Queues, gpu: Worker) -> None:
    Limits(queues.scripts).put("type:noop", Limit(concurrency=1))
    submit(queues, "gpu-1", 3)
    assert len(gpu.claim()) == 1
    assert gpu.claim() == []


def test_rqs_own_queues_are_never_taken(redis_client: Redis, queues: Queues) -> None:
    worker = Worker(redis_client, "all", {"*": None})
    redis_client.sadd(keys.RQ_QUEUES, keys.rq_queue("emails"))
    redis_client.hset(keys.rq_job("job"), "status", "queued")
    redis_client.rpush(keys.rq_queue("emails"), "job")
    worker.queues.look_soon()
    assert worker.claim() == worker.claim() == []
    assert redis_client.lrange(keys.rq_queue("emails"), 0, -1) == [b"job"]


def test_a_worker_with_patterns_only_claims_too(redis_client: Redis, queues: Queues) -> None:
    worker = Worker(redis_client, "only", {"gpu-*": None})
    assert worker.claim() == []
    assert worker.dispatched() == []
    task = submit(queues, "gpu-1")
    assert worker.dispatched() == task


@pytest.mark.parametrize("count", [4, 50, 200])
def test_a_claim_costs_the_same_with_many_empty_queues(redis_client: Redis, count: int) -> None:
    queues = Queues(Scripts(redis_client), QUEUES)
    for at in range(count):
        submit(queues, f"queue-{at}")
    worker = Worker(redis_client, "w", {"*": None})
    while worker.claim(50):
        pass
    fresh = Worker(redis_client, "fresh", {"*": None})
    redis_client.config_resetstat()
    assert fresh.claim() == []
    stats = redis_client.info("commandstats")
    beside = {"cmdstat_config|resetstat", "cmdstat_config", "cmdstat_info", "cmdstat_evalsha"}
    assert sum(row["calls"] for name, row in stats.items() if name not in beside) <= 25
