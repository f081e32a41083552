"""Locks and schedules over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from flask.testing import FlaskClient
from redis import Redis

from firmq.gateway.app import create_app
from firmq.shared.config.settings import Settings
from firmq.shared.domain.lock import Lock
from firmq.shared.redis.client import connect
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.locks import RedisLocks
from firmq.shared.stores.task_types import TaskType, TaskTypes
from firmq.shared.stores.tasks import Records
from tests.support.features import rows
from tests.support.harness import WEIGHTS, wait_until
from tests.support.keys import keys

LIFE = timedelta(seconds=30)
EVERY_MINUTE = {"type": "noop", "interval": 60}


@pytest.fixture
def http(redis_client: Redis, redis_url: str) -> Iterator[FlaskClient]:
    TaskTypes(redis_client).publish(
        [TaskType(name="noop", schema={}), TaskType(name="count", schema={"type": "integer"})]
    )
    with connect(redis_url) as redis:
        yield create_app(Settings(), redis).test_client()


@pytest.fixture
def locks(redis_client: Redis) -> Iterator[RedisLocks]:
    instance = RedisLocks(Scripts(redis_client), "hk-1")
    yield instance
    instance.stop()


# --- Locks -------------------------------------------------------------------------------------------------------


def test_a_held_lock_is_shown(http: FlaskClient, locks: RedisLocks) -> None:
    held = locks.acquire(Lock(name="timeout", at_most=LIFE))
    assert held is not None
    shown = http.get("/admin/locks/timeout").json
    assert shown is not None
    assert shown.pop("acquiredAt").endswith("Z")
    assert 29_000 < shown.pop("remainingTime") <= 30_000
    assert shown == {
        "name": "timeout",
        "lockKey": keys.lock("timeout"),
        "locked": True,
        "owner": "hk-1",
        "threadId": threading.get_native_id(),
        "fencingToken": held.fencing_token.token,
        "fencingNumber": held.term,
    }


def test_all_locks_are_listed_and_one_that_does_not_exist_is_404(http: FlaskClient) -> None:
    listed = http.get("/admin/locks").json
    assert listed is not None
    assert [item["name"] for item in listed["items"]] == sorted(
        [
            *("unlock", "timeout", "recovery", "ttl", "max_elements"),
            *("metrics", "schedules", "history", "rq_scheduler", *rows("JOBS")),
        ]
    )
    assert not any(item["locked"] for item in listed["items"])
    assert http.get("/admin/locks/nonsense").status_code == 404


def test_of_fifty_emergency_unlocks_one_succeeds_and_the_holder_stops(http: FlaskClient, locks: RedisLocks) -> None:
    held = locks.acquire(Lock(name="unlock", at_most=timedelta(seconds=30)))
    assert held is not None
    body = {"reason": "it hangs", "fencingToken": held.fencing_token.token}

    def unlock(_: int) -> int:
        return http.application.test_client().delete("/admin/locks/unlock", json=body).status_code

    with ThreadPoolExecutor(16) as pool:
        statuses = list(pool.map(unlock, range(50)))
    assert sorted(statuses) == [200] + [409] * 49
    # The next renewal tells it, long before the lock would have ended by itself.
    wait_until(lambda: not held.trusted, "the holder stopped", 20)


@pytest.mark.parametrize("body", [{}, {"reason": "x"}, {"fencingToken": "1:a"}, {"reason": "", "fencingToken": "1:a"}])
def test_an_emergency_unlock_needs_a_reason_and_the_token_seen(http: FlaskClient, body: dict[str, str]) -> None:
    assert http.delete("/admin/locks/unlock", json=body).status_code == 422


def test_a_changed_lock_is_a_409_with_a_type_of_its_own(http: FlaskClient) -> None:
    answer = http.delete("/admin/locks/unlock", json={"reason": "x", "fencingToken": "1:a"})
    assert answer.status_code == 409
    assert answer.json is not None
    assert answer.json["type"] == "/problems/lock-changed"


def test_the_leader_steps_down_on_request(http: FlaskClient, locks: RedisLocks) -> None:
    lock = Lock(name="metrics", at_most=LIFE)
    assert locks.acquire(lock)
    answer = http.post("/admin/leader/step-down", json={"reason": "maintenance of its machine"})
    assert (answer.status_code, answer.json) == (200, {"name": "metrics", "unlocked": True, "owner": "hk-1"})
    assert locks.acquire(lock) is None
    assert http.post("/admin/leader/step-down", json={"reason": "again"}).status_code == 409


# --- Schedules ---------------------------------------------------------------------------------------------------


def put(http: FlaskClient, name: str = "tick", **body: Any) -> Any:
    return http.put(f"/schedules/{name}", json={**EVERY_MINUTE, **body})


def test_a_schedule_is_created_once_and_putting_it_again_changes_nothing(http: FlaskClient) -> None:
    first, second = put(http), put(http)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json == second.json
    assert len(first.json["next_times"]) == 5
    assert first.json["next_at"] == first.json["next_times"][0]
    assert first.json["source"] == "api"


def test_a_cron_schedule_says_its_times_in_the_zone_that_was_named(http: FlaskClient) -> None:
    # Not between two and three, an hour that is left out when summer time begins: the clock here is the real one.
    body = {"type": "count", "data": 3, "cron": "30 4 * * *", "timezone": "Europe/Berlin", "priority": "high"}
    answer = http.put("/schedules/nightly", json=body)
    assert answer.status_code == 201
    assert answer.json is not None
    assert {item[11:] for item in answer.json["next_times"]} <= {"02:30:00Z", "03:30:00Z"}
    assert answer.json["queue"] == "high"


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"type": "noop", "cron": "61 * * * *"}, "cron"),
        ({"type": "noop", "cron": "R * * * *"}, "cron"),
        ({"type": "noop", "cron": "* * * * *", "timezone": "Mars"}, "timezone"),
        ({"type": "noop", "interval": 0}, "interval"),
        ({"type": "noop"}, "must have either cron or interval"),
        ({"type": "noop", "interval": 5, "overlap": "maybe"}, "overlap"),
        ({"type": "unheard of", "interval": 5}, "unheard of"),
        ({"type": "count", "data": "three", "interval": 5}, "data"),
    ],
)
def test_what_is_wrong_with_a_schedule_is_said(http: FlaskClient, body: dict[str, Any], where: str) -> None:
    answer = http.put("/schedules/tick", json=body)
    assert answer.status_code == 422
    assert where in answer.text


def test_a_name_that_leaves_no_room_for_the_due_time_is_refused(http: FlaskClient) -> None:
    assert put(http, "x" * 47).status_code == 422


def test_a_schedule_is_paused_with_a_reason_and_resumed(http: FlaskClient) -> None:
    put(http)
    paused = http.post("/schedules/tick/pause", json={"reason": "month end"}).json
    assert paused is not None
    assert (paused["paused"], paused["paused_reason"], paused["next_at"]) == (True, "month end", None)
    resumed = http.post("/schedules/tick/resume").json
    assert resumed is not None
    assert (resumed["paused"], len(resumed["next_times"])) == (False, 5)


def test_run_now_makes_a_task(http: FlaskClient, redis_client: Redis) -> None:
    put(http, tags=["report"])
    answer = http.post("/schedules/tick/run")
    assert answer.status_code == 202
    assert answer.json is not None
    task = Records(Scripts(redis_client), list(WEIGHTS)).get(answer.json["task_id"])
    assert task.summary.tags == ("report", "schedule:tick")


def test_schedules_are_listed_page_by_page(http: FlaskClient) -> None:
    for name in ("c", "a", "b"):
        put(http, name)
    first = http.get("/schedules?limit=2").json
    assert first is not None
    assert ([item["name"] for item in first["items"]], first["next_cursor"]) == (["a", "b"], "b")
    second = http.get("/schedules?limit=2&cursor=b").json
    assert second is not None
    assert ([item["name"] for item in second["items"]], second["next_cursor"]) == (["c"], None)


@pytest.mark.parametrize(
    ("method", "path"),
    [("get", ""), ("delete", ""), ("post", "/run"), ("post", "/resume")],
)
def test_a_schedule_that_is_not_there_is_404(http: FlaskClient, method: str, path: str) -> None:
    assert getattr(http, method)(f"/schedules/none{path}").status_code == 404


def test_a_removed_schedule_is_gone(http: FlaskClient) -> None:
    put(http)
    assert http.delete("/schedules/tick").json == {"name": "tick", "removed": True}
    assert http.get("/schedules/tick").status_code == 404


def test_the_new_addresses_are_in_the_api_document(http: FlaskClient) -> None:
    document = http.get("/openapi.json").json
    assert document is not None
    assert {"/admin/locks", "/admin/locks/{name}", "/schedules", "/schedules/{name}/run"} <= set(document["paths"])
    assert "lockKey" in document["components"]["schemas"]["LockView"]["properties"]
