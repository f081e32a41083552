"""Tasks of the type `rq` at the gateway: what is refused before it is stored, and what to change."""

from __future__ import annotations

from typing import Any

import pytest

from firmq.shared.config.settings import Settings
from firmq.shared.features.rq.settings import RqSettings
from firmq.shared.stores.task_types import TaskType
from firmq.worker.handlers.registry import load
from tests.integration.gateway.conftest import TYPES, MakeGateway
from tests.integration.gateway.driving import Gateway, problem
from tests.support.keys import keys

with pytest.MonkeyPatch.context() as patch:
    patch.setenv("RQ_TASK_QUEUES", "default,mail")
    patch.setenv("RQ_ALLOW", "shop.jobs.*,shop.send,*")
    OFFERED: TaskType = load(["firmq.worker.features.rq.rq_task"]).handlers["rq"].published(Settings())
SEND = {"func": "shop.jobs.send", "args": [7], "kwargs": {"copies": 2}}


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Gateway:
    return make_gateway((*TYPES, OFFERED))


@pytest.mark.parametrize(
    ("body", "field", "text"),
    [
        ({"data": {}}, "data", "func"),
        ({"data": {**SEND, "func": "os.system"}}, "data.func", "does not match RQ_ALLOW"),
        ({"data": {**SEND, "func": "shop.jobsx"}}, "data.func", "does not match RQ_ALLOW"),
        ({"data": {**SEND, "func": "shop.send.os.system"}}, "data.func", "does not match RQ_ALLOW"),
        ({"data": {**SEND, "args": "x"}}, "data.args", "array"),
        ({"data": {**SEND, "queue": "other"}}, "data.queue", "not one of RQ_TASK_QUEUES (default, mail)"),
        ({"data": {**SEND, "ttl": "x"}}, "data.ttl", "integer"),
        ({"queue": "mail", "data": SEND}, "queue", "name it in data.queue"),
        *(
            ({"data": {**SEND, option: 1}}, f"data.{option}", "use fields of the task, such as timeout")
            for option in ("job_timeout", "retry", "depends_on", "on_success", "result_ttl", "job_id", "meta", "repeat")
        ),
    ],
)
def test_what_is_no_job_of_rq_is_refused(gateway: Gateway, body: dict[str, Any], field: str, text: str) -> None:
    answer = gateway.http.post("/tasks", json={"type": "rq", **body})
    [mistake] = problem(answer, 422, "invalid-request")["errors"]
    assert mistake["field"].replace('["', ".").replace('"]', "") == field, mistake
    assert text in mistake["detail"]
    assert not gateway.redis.exists(keys.TASKS)
    scheduled = gateway.http.put("/schedules/nightly", json={"type": "rq", "interval": 60, **body})
    assert text in problem(scheduled, 422, "invalid-request")["errors"][0]["detail"]


def test_a_job_of_rq_is_accepted_alone_in_a_batch_and_in_a_schedule(gateway: Gateway) -> None:
    task = {"type": "rq", "data": {**SEND, "queue": "mail", "ttl": 60, "at_front": True}, "priority": "high"}
    assert gateway.http.post("/tasks", json={**task, "timeout": 5, "delay": 10}).status_code == 202
    assert gateway.http.post("/tasks/batch", json={"tasks": [task, task]}).status_code == 202
    assert gateway.http.put("/schedules/nightly", json={**task, "cron": "0 3 * * *"}).status_code == 201


def test_a_queue_of_task_queue_may_be_named_and_one_of_rq_may_not(gateway: Gateway) -> None:
    task = {"type": "rq", "data": SEND, "queue": "normal"}
    accepted = gateway.http.post("/tasks", json={**task, "delay": 60})
    assert accepted.status_code == 202
    assert accepted.json
    schedule = {**task, "interval": 60}
    assert gateway.http.put("/schedules/often", json=schedule).status_code == 201
    place = f"/tasks/{accepted.json['task_id']}"
    assert gateway.http.patch(place, json={"queue": "high"}).status_code == 200
    for answer in (
        gateway.http.patch(place, json={"queue": "mail"}),
        gateway.http.put("/schedules/often", json={**schedule, "queue": "mail"}),
    ):
        [mistake] = problem(answer, 422, "invalid-request")["errors"]
        assert "name it in data.queue" in mistake["detail"]


def test_without_a_worker_that_offers_the_type_the_answer_names_the_settings(make_gateway: MakeGateway) -> None:
    answer = make_gateway().http.post("/tasks", json={"type": "rq", "data": SEND})
    assert "or set RQ_ALLOW (names such as shop.jobs.*) and RQ_TASK_QUEUES for a worker" in answer.text


@pytest.mark.parametrize(
    ("settings", "calls"),
    [
        ({"rq_task_queues": ("a",), "rq_allow": ("shop.*", "*", "*.*", "?*", "[a-z]*")}, (("a",), ("shop.*",))),
        ({"rq_queues": ("a",), "rq_allow": ("shop.*",)}, None),
        ({"rq_queues": ("a",), "rq_task_queues": ("b",), "rq_allow": ("shop.*",)}, (("b",), ("shop.*",))),
        ({"rq_allow": ("shop.*",)}, None),
    ],
)
def test_only_named_modules_and_queues_are_offered(settings: dict[str, Any], calls: object) -> None:
    assert RqSettings.of(Settings.model_validate(settings)).rq_calls == calls


def test_queues_without_functions_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="RQ_TASK_QUEUES needs RQ_ALLOW with a first name without wildcards"):
        Settings.model_validate({"rq_task_queues": ("a",), "rq_allow": ("*.*",)})
