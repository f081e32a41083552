"""What nobody can read is the trouble of its own row: the rows beside it, and the other pages, are as they were."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial

import pytest

from tests.integration.quarantine.scene import WORKER, Scene
from tests.integration.quarantine.test_keys import endure
from tests.support.features import rows
from tests.support.keys import keys

LISTS = ("/tasks", "/dlq/failed-tasks", "/schedules", "/queues", "/types", "/limits", "/batches", "/workers")
ADMIN = ("/admin/locks",)
MANY = b"9" * 5000
DEEP = b"[" * 100_000 + b"]" * 100_000
STRANGERS = (b"\xff\xfe", b"\xfe\xff", b"", b"x" * 10_000)
FAR = (9e15, float("inf"), float("-inf"), 0.0)
YEARS = {"fraction": 1e308, "message": "x"}


def strangers(scene: Scene, key: str) -> None:
    """Members before and behind those of an index that are no ids, some of which look alike."""
    for number, score in enumerate(FAR):
        scene.redis.zadd(key, {each + b"\xff" * number: score for each in STRANGERS})


def record(scene: Scene, which: str, **fields: str | bytes) -> None:
    scene.redis.hset(keys.rq_job(scene.names[which]), mapping=fields)  # type: ignore[arg-type]  # str and bytes mixed


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


def odd_type(scene: Scene, entry: str | None) -> None:
    scene.redis.hset(keys.type_set("odd set"), mapping={"odd": "odd version", "@first": "soon", "@host": b"\xff"})
    scene.redis.zadd(keys.TYPE_SETS, {"odd set": 1})
    if entry is not None:
        scene.redis.hset(keys.TYPE_VERSIONS, "odd version", entry)


PLANTS: Mapping[str, Callable[[Scene], object]] = {
    "strange ids among all tasks": lambda scene: strangers(scene, keys.TASKS),
    "strange ids among dead letters": lambda scene: strangers(scene, keys.ended("failed")),
    "strange names of schedules": lambda scene: scene.redis.zadd(keys.SCHEDULES, dict.fromkeys(STRANGERS, 0)),
    "strange schedules that are due": lambda scene: strangers(scene, keys.SCHEDULES_DUE),
    "strange ids of batches": lambda scene: strangers(scene, keys.BATCHES),
    "a count of many digits": count,
    "a fence of many digits": lambda scene: scene.redis.hset(keys.LOCK_FENCES, "metrics", MANY),
    "a lock taken at many digits": lambda scene: scene.redis.hset(keys.lock("recovery"), "acquired_at", MANY),
    "a lock of nobody": lambda scene: scene.redis.hset(keys.lock("recovery"), "owner", b"\xff"),
    "a fraction of too much": lambda scene: record(scene, "running", state="running", progress=json.dumps(YEARS)),
    "a worker from no zone": lambda scene: worker(scene, "started_at", "2026-01-01T00:00:00"),
    "a worker of endless memory": lambda scene: worker(scene, "memory_bytes", 10**400),
    "a pause from no zone": lambda scene: scene.redis.hset(keys.PAUSED, "low", '{"at": "2026-01-01T00:00:00"}'),
    "a schedule beyond all calendars": late_interval,
    "deep parents": lambda scene: record(scene, "blocked", parents=DEEP),
    "a deep cause": lambda scene: record(scene, "failed", error=DEEP),
    "a span of ages": long_span,
    "a type with a number for a name": lambda scene: odd_type(scene, '{"name": 5, "schema": {}}'),
    "a type with a list for a schema": lambda scene: odd_type(scene, '{"name": "odd", "schema": [1]}'),
    "a version of nothing": lambda scene: odd_type(scene, None),
    "a set of types from no time": lambda scene: scene.redis.zadd(keys.TYPE_SETS, {"nothing": 1e300}),
    "a worker with a set that is not there": lambda scene: scene.redis.hset(keys.TYPES_OF, WORKER, "nothing"),
    "a limit of too much": lambda scene: scene.redis.hset(
        keys.LIMITS, "key:scarce", f'{{"concurrency": 1.5, "count": {"9" * 400}, "per": 1e-320, "at": NaN}}'
    ),
    **{what: partial(strangers, key=key) for what, key in rows("STRANGERS")},
}


@pytest.mark.parametrize("plant", PLANTS)
def test_corruption_affects_its_own_row_only(scene: Scene, caplog: pytest.LogCaptureFixture, plant: str) -> None:
    scene.put_back()
    PLANTS[plant](scene)
    http = scene.gateway.test_client()
    assert {path: http.get(path).status_code for path in (*LISTS, *ADMIN)} == dict.fromkeys((*LISTS, *ADMIN), 200)
    endure(scene, caplog, refused=())


@pytest.mark.parametrize("path", ["/tasks", "/dlq/failed-tasks", "/schedules", "/batches"])
def test_paging_passes_foreign_entries(scene: Scene, path: str) -> None:
    scene.put_back()
    http = scene.gateway.test_client()
    honest = ids(http.get(path, query_string={"limit": 200}).get_json())
    for key in (keys.TASKS, keys.ended("failed"), keys.BATCHES):
        strangers(scene, key)
    scene.redis.zadd(keys.SCHEDULES, dict.fromkeys(STRANGERS, 0))
    seen: list[str] = []
    cursor: str | None = None
    for _ in range(len(honest) + len(FAR) * len(STRANGERS) + 1):
        page = http.get(path, query_string={"limit": 1, **({"cursor": cursor} if cursor else {})}).get_json()
        seen += ids(page)
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert cursor is None
    assert [each for each in seen if each in honest] == honest


def ids(page: Mapping[str, list[Mapping[str, str]]]) -> list[str]:
    return [next(each[name] for name in ("task_id", "batch_id", "name") if name in each) for each in page["items"]]
