"""What nobody can read does not vanish from the lists of schedules and workers: it is shown, with what to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.quarantine.scene import WORKER, Scene
from tests.integration.quarantine.test_keys import put
from tests.support.keys import keys

NUMBERS = (b"nan", b"1e400", b"-7", b"9" * 18, b"9" * 400, b"9" * 5000)
GARBAGE = (b"", b"\xff", b"{", b"[1]", b"null", *NUMBERS, b"[" * 100_000)
MEMBERS: tuple[Any, ...] = ("", "\ud800", {"a": 1}, [[]], None, -7, 1e300, 10**400, "x", "2026-01-01T00:00:00")
SPEC = ("type", "data", "queue", "cron", "interval", "timezone", "missed", "missed_limit", "overlap", "tags", "retry")
WRONG = ("string", "list", "set", "zset", "stream")


@pytest.fixture
def spoilt(scene: Scene) -> Iterator[Scene]:
    scene.put_back()
    yield scene
    scene.put_back()


def read(scene: Scene, path: str) -> Any:
    """What the gateway answers; a key of another type is set aside by the first who asks."""
    answer = scene.gateway.test_client().get(path)
    if answer.status_code == 503:
        answer = scene.gateway.test_client().get(path)
    assert answer.status_code == 200, (path, answer.text)
    return answer.get_json()


def page(scene: Scene, path: str) -> str:
    scene.forget()
    answer = scene.dashboard.test_client().get(path)
    assert answer.status_code == 200, (path, answer.text)
    return answer.text


def nightly_is_shown(scene: Scene) -> bool:
    """Whether it can be read; shown it is in any case, and deleted and set anew."""
    listed = read(scene, "/schedules")
    names = [each["name"] for each in listed["items"]]
    assert sorted([*names, *listed["unreadable"]]) == ["nightly"]
    assert "nightly" in page(scene, "/schedules")
    http = scene.gateway.test_client()
    one = http.get("/schedules/nightly")
    assert one.status_code == 200 or "delete it and create it again" in one.get_json()["detail"]
    shown = scene.dashboard.test_client().get("/schedules/nightly")
    assert shown.status_code == one.status_code or shown.status_code == 409
    assert http.delete("/schedules/nightly").status_code == 200
    assert http.put("/schedules/nightly", json={"type": "noop", "cron": "0 3 * * *"}).status_code == 201
    return bool(names)


@pytest.mark.parametrize(
    "field", ["spec", "source", "due", "paused", "last_due", "last_task", "fired", "missed", "overlaps", "revision"]
)
def test_a_schedule_with_a_damaged_field_is_shown_and_can_be_set_anew(spoilt: Scene, field: str) -> None:
    seen = set()
    for garbage in GARBAGE:
        spoilt.put_back()
        spoilt.redis.hset(keys.schedule("nightly"), field, garbage)
        seen.add(nightly_is_shown(spoilt))
    assert False in seen or field in ("source", "last_task", "revision")


@pytest.mark.parametrize("member", SPEC)
def test_a_schedule_whose_spec_holds_anything_is_shown_and_can_be_set_anew(spoilt: Scene, member: str) -> None:
    spec = json.loads(spoilt.redis.hget(keys.schedule("nightly"), "spec") or b"")
    for value in MEMBERS:
        spoilt.put_back()
        spoilt.redis.hset(keys.schedule("nightly"), "spec", json.dumps({**spec, member: value}))
        nightly_is_shown(spoilt)


@pytest.mark.parametrize("kind", [*WRONG, "gone"])
def test_a_schedule_without_its_record_is_shown_and_can_be_replaced(spoilt: Scene, kind: str) -> None:
    spoilt.redis.delete(keys.schedule("nightly"))
    if kind != "gone":
        put(spoilt.redis, keys.schedule("nightly"), kind)
    assert not nightly_is_shown(spoilt)


def test_a_damaged_schedule_that_is_put_again_is_as_it_says(spoilt: Scene) -> None:
    http = spoilt.gateway.test_client()
    body = {"type": "noop", "cron": "0 4 * * *"}
    assert http.put("/schedules/nightly", json=body).status_code == 200
    for garbage in GARBAGE:
        spoilt.redis.hset(keys.schedule("nightly"), "spec", garbage)
        assert http.put("/schedules/nightly", json=body).get_json()["cron"] == "0 4 * * *"


def worker_is_shown(scene: Scene) -> bool:
    seconds, us = scene.redis.time()
    scene.redis.zadd(keys.WORKERS, {WORKER: seconds * 1_000_000 + us})  # it lives, however slow the test is
    listed = read(scene, "/workers")
    names = [each["name"] for each in listed["items"]]
    assert sorted([*names, *listed["unreadable"]]) == [WORKER]
    shown = page(scene, "/workers")
    assert WORKER in shown
    assert "1 alive" in shown
    overview = page(scene, "/")
    assert "1 alive" in overview
    assert "No worker is alive" not in overview
    assert ("with a corrupt record" in overview) == (names == [])
    return bool(names)


def test_a_worker_whose_record_cannot_be_read_is_shown_as_alive(spoilt: Scene) -> None:
    for garbage in GARBAGE:
        spoilt.put_back()
        spoilt.redis.set(keys.worker(WORKER), garbage)
        assert not worker_is_shown(spoilt)
    for kind in WRONG:
        spoilt.put_back()
        put(spoilt.redis, keys.worker(WORKER), kind)
        assert not worker_is_shown(spoilt)


def test_a_worker_that_says_anything_of_itself_is_shown(spoilt: Scene) -> None:
    record = json.loads(spoilt.redis.get(keys.worker(WORKER)) or b"")
    for member in record:
        for value in MEMBERS:
            spoilt.redis.set(keys.worker(WORKER), json.dumps({**record, member: value}))
            worker_is_shown(spoilt)
