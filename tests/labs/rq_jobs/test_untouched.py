"""Some seconds of the proof that RQ's structures are left alone; `tests.labs.rq_jobs untouched` takes an hour."""

from __future__ import annotations

from pathlib import Path

from redis import Redis

from tests.labs.rq_jobs.untouched import THEIRS, Untouched, changes, plant, snapshot

KINDS = {
    "canceled",
    "clean_groups",
    "clean_registries",
    "cron_scheduler",
    "cron_schedulers",
    "deferred",
    "execution",
    "executions",
    "failed",
    "finished",
    "group",
    "groups",
    "job",
    "program",
    "queue",
    "queues",
    "ready",
    "results",
    "scheduled",
    "scheduler",
    "scheduler-lock",
    "scheduler_instance",
    "wip",
    "worker",
    "workers",
}


def test_a_running_system_leaves_rqs_structures_alone(tmp_path: Path) -> None:
    run = Untouched(6)
    assert run.run(tmp_path) == []
    assert {key.split(":")[1] for key in run.planted} == KINDS
    assert run.tasks >= 20
    assert run.jobs >= 20


def test_each_kind_of_change_is_found(redis_client: Redis) -> None:
    plant(redis_client)
    planted = snapshot(redis_client)
    assert changes(planted, redis_client) == []
    redis_client.lpop(f"rq:queue:{THEIRS}")
    redis_client.delete(f"rq:failed:{THEIRS}")
    redis_client.srem("rq:workers", "rq:worker:stock")
    redis_client.expire("rq:worker:stock", 5)
    assert changes(planted, redis_client) == [
        f"rq:failed:{THEIRS} is gone",
        f"rq:queue:{THEIRS} is another value",
        "rq:worker:stock expires at another time",
        "rq:workers lost rq:worker:stock",
    ]
