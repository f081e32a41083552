"""Task types that no live worker has: accepted with a warning or refused, and shown as that."""

from __future__ import annotations

import time
from typing import Any

import pytest

from firmq.shared.redis.client import text
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores import maintenance
from firmq.shared.stores.task_types import TaskType
from tests.integration.gateway.conftest import TYPES, MakeGateway
from tests.integration.gateway.driving import Gateway
from tests.support.keys import keys

ABSENT = "no live worker has this type; last seen 8 min ago on h"


def leave(gateway: Gateway, seconds: float) -> None:
    """The last worker with these types was heard of so long ago."""
    for each in gateway.redis.zrange(keys.TYPE_SETS, 0, -1):
        digest = text(each)
        gateway.redis.hset(keys.type_set(digest), "@host", "h")
        gateway.redis.zadd(keys.TYPE_SETS, {digest: (time.time() - seconds) * 1_000_000})


@pytest.mark.parametrize("path", ["/tasks", "/tasks/batch"])
def test_such_a_task_is_accepted_with_a_warning(make_gateway: MakeGateway, path: str) -> None:
    gateway = make_gateway()
    leave(gateway, 500)
    task: dict[str, Any] = {"type": "process", "data": 1}
    answer = gateway.http.post(path, json=task if path == "/tasks" else {"tasks": [task]})
    assert answer.status_code == 202
    said = answer.get_json() if path == "/tasks" else answer.get_json()["items"][0]
    assert said["warnings"] == [ABSENT]
    assert gateway.show(said["task_id"])["warnings"] == [ABSENT]


def test_a_worker_that_was_there_a_moment_ago_is_no_reason_to_warn(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(refuse_without_worker=True)
    leave(gateway, 20)
    answer = gateway.http.post("/tasks", json={"type": "process", "data": 1})
    assert answer.status_code == 202
    assert "warnings" not in answer.get_json()


def test_such_a_task_is_refused_where_that_is_set(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(refuse_without_worker=True)
    leave(gateway, 500)
    answer = gateway.http.post("/tasks", json={"type": "process", "data": 1})
    assert (answer.status_code, answer.get_json()["type"]) == (503, "/problems/no-worker")
    assert ABSENT in answer.get_json()["detail"]
    assert "REFUSE_WITHOUT_WORKER" in answer.get_json()["detail"]


def test_types_say_whether_a_worker_has_them_until_they_are_forgotten(make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    leave(gateway, 500)
    shown = gateway.http.get("/types/process").get_json()
    assert (shown["live"], shown["versions"], shown["last_seen_on"]) == (False, 1, "h")
    maintenance.types_prune(Scripts(gateway.redis), 60_000_000, 200)
    assert make_gateway(types=()).http.get("/types/process").status_code == 404


def test_a_type_without_a_usable_schema_refuses_no_other_task_of_a_batch(make_gateway: MakeGateway) -> None:
    broken = TaskType(name="broken", schema={"type": "string", "pattern": "("})
    gateway = make_gateway(types=(*TYPES, broken))
    tasks = [{"type": "process", "data": 1}, {"type": "broken", "data": "a"}]
    answer = gateway.http.post("/tasks/batch", json={"tasks": tasks})
    assert answer.status_code == 207
    taken, refused = answer.get_json()["items"]
    assert taken["status"] == "pending"
    assert refused["problem"]["type"] == "/problems/no-task-types"
