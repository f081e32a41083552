"""Webhooks at the door: what is refused, what is shown, and who may sign."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from firmq.shared.domain.schedule import Schedule, task_for
from firmq.shared.domain.task import WEBHOOK_TYPE, Webhook
from firmq.shared.stores.queues import Queues
from firmq.shared.stores.schedules import ScheduleStore
from firmq.shared.stores.task_types import TaskType
from tests.integration.gateway.conftest import TYPES, MakeGateway
from tests.integration.gateway.driving import QUEUES, Gateway, problem
from tests.support.keys import keys
from tests.support.receiver import SECRET

URL = "https://shop.example/hooks"


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Gateway:
    types = (*TYPES, TaskType(name=WEBHOOK_TYPE, schema={}))
    return make_gateway(types, webhook_secrets=(SECRET,), webhook_allow=("10.9.0.0/16",))


@pytest.mark.parametrize(
    ("webhook", "field"),
    [
        ("https://shop.example", "webhook"),
        ({}, "webhook.url"),
        ({"url": 1}, "webhook.url"),
        ({"url": "http://127.0.0.1/"}, "webhook.url"),
        ({"url": "http://2130706433/"}, "webhook.url"),
        ({"url": "http://[::ffff:10.0.0.1]/"}, "webhook.url"),
        ({"url": "https://user:pass@shop.example/"}, "webhook.url"),
        ({"url": "https://shop.example:22/"}, "webhook.url"),
        ({"url": URL, "events": []}, "webhook.events"),
        ({"url": URL, "events": ["started"]}, "webhook.events[0]"),
        ({"url": URL, "secret": "x"}, "webhook.secret"),
    ],
)
def test_a_webhook_that_cannot_be_is_refused(gateway: Gateway, webhook: object, field: str) -> None:
    answer = gateway.http.post("/tasks", json={"type": "process", "data": 1, "webhook": webhook})
    [mistake] = problem(answer, 422, "invalid-request")["errors"]
    assert mistake["field"] == field or mistake["detail"]
    assert not gateway.redis.exists(keys.TASKS)


def test_without_secrets_there_are_no_webhooks(make_gateway: MakeGateway) -> None:
    answer = make_gateway().http.post("/tasks", json={"type": "process", "data": 1, "webhook": {"url": URL}})
    assert "WEBHOOK_SECRETS" in str(problem(answer, 422, "invalid-request")["errors"])


def test_what_the_settings_allow_gets_in(gateway: Gateway) -> None:
    gateway.submit(webhook={"url": "http://10.9.0.1:5000/"})


@pytest.mark.parametrize("path", ["/tasks", "/tasks/batch"])
def test_a_client_cannot_submit_a_delivery(gateway: Gateway, path: str) -> None:
    forged = {"type": WEBHOOK_TYPE, "data": {"url": URL, "event": "completed"}}
    answer = gateway.http.post(path, json=forged if path == "/tasks" else {"tasks": [forged]})
    assert "unknown-task-type" in answer.text
    assert not gateway.redis.exists(keys.TASKS)
    assert WEBHOOK_TYPE not in gateway.http.get("/types").text


def test_tasks_of_a_schedule_have_its_webhook(gateway: Gateway) -> None:
    wanted = {"type": "process", "interval": 60, "limit_key": "partner", "fair_key": "shop-7"}
    refused = gateway.http.put("/schedules/pulse", json={**wanted, "webhook": {"url": "http://127.0.0.1/"}})
    assert problem(refused, 422, "invalid-request")["errors"][0]["field"] == "webhook.url"
    shown = gateway.http.put("/schedules/pulse", json={**wanted, "webhook": {"url": URL, "events": ["failed"]}}).json
    assert shown
    assert (shown["limit_key"], shown["fair_key"]) == ("partner", "shop-7")
    assert shown["webhook"] == {"url": URL, "events": ["failed"]}
    task = gateway.show(gateway.http.post("/schedules/pulse/run").json["task_id"])  # type: ignore[index]  # a 202 has a body
    assert (task["limit_key"], task["fair_key"], task["webhook"]) == ("partner", "shop-7", shown["webhook"])


def test_a_stored_schedule_of_webhooks_is_not_run_by_hand(gateway: Gateway) -> None:
    forged = Schedule(name="forged", type=WEBHOOK_TYPE, queue="normal", interval=60)
    ScheduleStore(gateway.scripts).put(forged)
    problem(gateway.http.post("/schedules/forged/run"), 422, "unknown-task-type")
    assert not gateway.redis.exists(keys.TASKS)


def test_a_task_shows_its_deliveries_and_they_are_sent_again(gateway: Gateway) -> None:
    task = gateway.submit(webhook={"url": URL, "events": ["completed"], "retry": {"max_retries": 2}})
    assert gateway.show(task)["webhook"] == {"url": URL, "events": ["completed"]}
    gateway.start()
    gateway.complete(task, {"x": 1})
    [delivery] = gateway.show(task)["deliveries"]
    assert delivery["status"] == "pending"
    shown = gateway.show(delivery["task_id"])
    assert (shown["type"], shown["delivery_of"], shown["max_retries"]) == (WEBHOOK_TYPE, task, 2)
    again = f"/tasks/{delivery['task_id']}/redeliver"
    problem(gateway.http.post(again), 409, "wrong-state")
    gateway.fail(delivery["task_id"])
    answer = gateway.http.post(again)
    assert (answer.status_code, answer.json) == (202, {"task_id": delivery["task_id"], "status": "pending"})
    problem(gateway.http.post(f"/tasks/{task}/redeliver"), 404, "not-found")


def test_a_delivery_with_the_longest_id_is_reached_like_any_other(gateway: Gateway) -> None:
    schedule = Schedule(name="n" * 46, type="process", queue="normal", interval=60, webhook=Webhook(url=URL))
    task = task_for(schedule, datetime(2030, 1, 31, tzinfo=UTC))
    Queues(gateway.scripts, dict.fromkeys(QUEUES, 1)).submit([task])
    gateway.start()
    gateway.complete(task.id)
    [listed] = gateway.show(task.id)["deliveries"]
    delivery = listed["task_id"]
    assert delivery == f"{schedule.name}-20300131T000000Z-hook-1"
    assert gateway.show(delivery)["delivery_of"] == task.id
    assert gateway.submit(depends_on=[delivery])
    gateway.fail(delivery)
    assert gateway.http.post(f"/dlq/failed-tasks/{delivery}/retry").status_code == 202
    assert gateway.http.delete(f"/tasks/{delivery}").json == {"task_id": delivery, "status": "cancelled"}


def test_tasks_of_a_batch_may_have_webhooks(gateway: Gateway) -> None:
    item = {"type": "process", "data": 1, "webhook": {"url": URL}}
    answer = gateway.http.post("/tasks/batch", json={"tasks": [item]})
    [task] = gateway.start()
    gateway.complete(task)
    assert answer.status_code == 202
    assert len(gateway.show(task)["deliveries"]) == 1
