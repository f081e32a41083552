"""What nobody can read is the trouble of its own row: the rows beside it, and the other pages, are as they were."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest

from shared import keys
from tests.damage.scene import WORKER, Scene
from tests.damage.test_keys import endure

LISTS = ("/tasks", "/dlq/failed-tasks", "/schedules", "/queues", "/types", "/limits", "/batches", "/workers")
ADMIN = ("/admin/locks",)
MANY = b"9" * 5000
DEEP = b"[" * 100_000 + b"]" * 100_000
YEARS = {"fraction": 1e308, "message": "x"}


def record(scene: Scene, state: str, **fields: str | bytes) -> None:
    scene.redis.hset(keys.rq_job(scene.names[state]), mapping=fields)  # type: ignore[arg-type]  # str and bytes mixed


def count(scene: Scene) -> None:
    seconds, _ = scene.redis.time()
    for minute in (seconds // 60, seconds // 60 + 1):
        scene.redis.hset(keys.throughput(minute), "completed", MANY)


def worker(scene: Scene, member: str, value: object) -> None:
    about = json.loads(scene.redis.get(keys.worker(WORKER)) or b"")
    scene.redis.set(keys.worker(WORKER), json.dumps({**about, member: value}))


def late_interval(scene: Scene) -> None:
    spec = json.loads(scene.redis.hget(keys.schedule("nightly"), "spec") or b"")
    every = json.dumps({**spec, "cron": None, "interval": 31_622_400})
    scene.redis.hset(keys.schedule("nightly"), mapping={"spec": every, "due": 9 * 10**18})


def long_span(scene: Scene) -> None:
    span = {"name": "x", "after_us": 8e19, "us": 8e19}
    attempt = {"outcome": "completed", "started_at": 1e15, "ended_at": 1.1e15, "spans": [span]}
    record(scene, "completed", **{"attempt:1": json.dumps(attempt)})


PLANTS: Mapping[str, Callable[[Scene], object]] = {
    "a count of many digits": count,
    "a fence of many digits": lambda scene: scene.redis.hset(keys.LOCK_FENCES, "metrics", MANY),
    "a lock taken at many digits": lambda scene: scene.redis.hset(keys.lock("recovery"), "acquired_at", MANY),
    "a fraction of too much": lambda scene: record(scene, "running", state="running", progress=json.dumps(YEARS)),
    "a worker from no zone": lambda scene: worker(scene, "started_at", "2026-01-01T00:00:00"),
    "a worker of endless memory": lambda scene: worker(scene, "memory_bytes", 10**400),
    "a pause from no zone": lambda scene: scene.redis.hset(keys.PAUSED, "low", '{"at": "2026-01-01T00:00:00"}'),
    "a schedule beyond all calendars": late_interval,
    "deep parents": lambda scene: record(scene, "blocked", parents=DEEP),
    "a deep cause": lambda scene: record(scene, "failed", error=DEEP),
    "a span of ages": long_span,
    "a type with a number for a name": lambda scene: scene.redis.hset(keys.TYPES, "odd", '{"name": 5, "schema": {}}'),
    "a type with a list for a schema": lambda scene: scene.redis.hset(
        keys.TYPES, "odd", '{"name": "odd", "schema": [1]}'
    ),
    "a limit of too much": lambda scene: scene.redis.hset(
        keys.LIMITS, "key:scarce", f'{{"concurrency": 1.5, "count": {"9" * 400}, "per": 1e-320, "at": NaN}}'
    ),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_damage_is_the_trouble_of_its_own_row(scene: Scene, caplog: pytest.LogCaptureFixture, plant: str) -> None:
    scene.put_back()
    PLANTS[plant](scene)
    assert not list(scene.refusals())
    http = scene.gateway.test_client()
    assert {path: http.get(path).status_code for path in (*LISTS, *ADMIN)} == dict.fromkeys((*LISTS, *ADMIN), 200)
    endure(scene, caplog)
