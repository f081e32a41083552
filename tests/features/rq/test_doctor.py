"""What the doctor finds beside workers that run jobs of RQ programs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from redis import Redis
from rq import Queue, SimpleWorker
from rq_scheduler import Scheduler

from firmq.shared.conditions.findings import Finding, Level
from firmq.shared.conditions.observation import Observer
from firmq.shared.config.settings import Settings
from firmq.shared.features.rq.programs import check_rq_programs
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.workers import WorkerInfo, Workers
from tests.support.harness import System, wait_until
from tests.support.keys import keys
from tests.support.rq_functions import ALLOWED


def ours(redis: Redis, name: str, *rq_queues: str, version: str = "3.0.0") -> None:
    Workers(redis).announce(
        WorkerInfo(
            name=name,
            host="h",
            pid=1,
            version=version,
            queues=("normal",),
            executors=1,
            started_at=datetime.now(UTC),
            rq_queues=rq_queues,
        )
    )


def theirs(redis: Redis, name: str, *queues: str) -> Any:
    worker: Any = SimpleWorker([Queue(each, connection=redis) for each in queues], name=name, connection=redis)
    worker.register_birth()
    return worker


def found(redis: Redis) -> list[tuple[str, Level, str]]:
    findings: list[Finding] = check_rq_programs(redis, Settings(), Observer(Scripts(redis), Settings()).glance())
    assert all(each.advice for each in findings if each.level is not Level.OK)
    return [(each.check, each.level, each.seen) for each in findings]


def test_nothing_is_said_without_rq_programs(redis_client: Redis) -> None:
    ours(redis_client, "a")
    theirs(redis_client, "b", "elsewhere")
    assert found(redis_client) == []


def test_a_system_with_rq_queues_that_is_well(redis_client: Redis) -> None:
    ours(redis_client, "w1", "imports", "mail")
    assert found(redis_client) == [("rq programs", Level.OK, "worker w1 runs jobs of imports, mail")]
    ours(redis_client, "w2", "imports", "mail")
    assert found(redis_client) == [("rq programs", Level.OK, "workers w1, w2 run jobs of imports, mail")]


def test_rq_workers_on_the_same_queue_are_named(redis_client: Redis) -> None:
    ours(redis_client, "w1", "imports", "mail")
    theirs(redis_client, "a", "imports", "elsewhere")
    says = "RQ worker a serves queue imports, as workers of this system do"
    assert found(redis_client) == [("rq workers", Level.WARNING, says)]
    b = theirs(redis_client, "b", "imports")
    says = "RQ workers a, b serve queue imports, as workers of this system do"
    assert found(redis_client) == [("rq workers", Level.WARNING, says)]
    b.register_death()
    theirs(redis_client, "c", "mail", "imports")
    says = "RQ worker a serves queue imports; RQ worker c serves queues imports, mail, as workers of this system do"
    assert found(redis_client) == [("rq workers", Level.WARNING, says)]


def test_an_rq_worker_on_a_queue_of_this_system_is_named(redis_client: Redis) -> None:
    theirs(redis_client, "a", "normal", "high")
    assert found(redis_client) == [
        ("rq workers", Level.WARNING, "RQ worker a serves queues high, normal of this system")
    ]


def test_entries_of_rq_scheduler_that_are_schedules_too_are_named(redis_client: Redis) -> None:
    ours(redis_client, "w1", "imports")
    scheduler = Scheduler("imports", connection=redis_client)
    for name in ("report", "mail"):
        scheduler.cron("0 3 * * *", "shop.tasks.report", args=[7], id=name)
    declare(redis_client, "other")
    assert [each[1] for each in found(redis_client)] == [Level.OK], "both may have schedules"
    declare(redis_client, "report")
    assert found(redis_client) == [("rq schedules", Level.WARNING, "in rq-scheduler and here: report")]


def declare(redis: Redis, name: str) -> None:
    redis.zadd(keys.SCHEDULES, {name: 0})


@pytest.mark.parametrize(
    ("served", "level", "says"),
    [
        ("imports", Level.WARNING, "worker w1 has RQ 3; workers w2, w3 have RQ 2"),
        ("mail", Level.OK, "workers w1, w2, w3 run jobs of imports, mail"),
    ],
)
def test_workers_of_one_queue_that_differ_are_named(redis_client: Redis, served: str, level: Level, says: str) -> None:
    ours(redis_client, "w1", "imports")
    for name in ("w2", "w3"):
        ours(redis_client, name, served, version="2.12.0")
    assert found(redis_client) == [("rq programs", level, says)]


def test_real_workers_are_found(system: System, redis_server: EmbeddedRedis) -> None:
    system.start_worker(RQ_QUEUES="imports", RQ_ALLOW=ALLOWED)
    [worker] = system.workers.all()
    assert found(system.redis) == [("rq programs", Level.OK, f"worker {worker.name} runs jobs of imports")]
    system.start("rq.cli", "worker", "--url", redis_server.url, "--quiet", "--name", "stock", "imports")
    says = "RQ worker stock serves queue imports, as workers of this system do"
    wait_until(lambda: found(system.redis) == [("rq workers", Level.WARNING, says)], "the RQ worker is found")
