"""Webhooks: whoever asked is told of the end of a task, signed, at least once, whatever dies in between."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from redis import Redis

from firmq.shared.domain.egress_policy import EgressPolicy
from firmq.shared.domain.lock import FencingToken
from firmq.shared.domain.task import On, Parent, TaskDetail, TaskState, TaskSummary, Webhook
from firmq.shared.errors import IllegalTransition, TaskNotFound
from firmq.shared.features.webhooks.store import redeliver
from firmq.shared.stores import maintenance
from firmq.worker.features.webhooks.handler import DeliveryFailed, Notification, deliver
from firmq.worker.handlers.pinned_http import CallFailed, Connection, in_thread
from firmq.worker.handlers.signals import RetryLater
from tests.support import one_slot
from tests.support.harness import System, free_port, running_system, wait_until
from tests.support.keys import keys
from tests.support.receiver import SECRET, Receiver, dripping, genuine, receiving, saying

S = TaskState
QUICKLY = {"initial_delay": 0.05, "multiplier": 1.0, "jitter": 0.0}
OTHER_SECRET = "another secret and not in base64 at all"


@pytest.fixture
def system(redis_client: Redis, redis_url: str, tmp_path: Path) -> Iterator[System]:
    secrets = f"{SECRET},{OTHER_SECRET}"
    with running_system(
        redis_client, redis_url, tmp_path, WEBHOOK_SECRETS=secrets, WEBHOOK_ALLOW="127.0.0.0/8", WORKER_EXECUTORS="2"
    ) as running:
        yield running


@pytest.fixture(scope="module")
def working(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A worker and a housekeeper for all tests that need no others, on a Redis that no test empties."""
    with (
        one_slot.own_server(tmp_path_factory.mktemp("redis")) as server,
        one_slot.client_of(server) as redis,
        running_system(
            redis,
            one_slot.url_of(server),
            tmp_path_factory.mktemp("logs"),
            WEBHOOK_SECRETS=f"{SECRET},{OTHER_SECRET}",
            WEBHOOK_ALLOW="127.0.0.0/8",
            WORKER_EXECUTORS="2",
        ) as running,
    ):
        running.start_worker()
        running.start_housekeeper()
        yield running


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as there:
        yield there


def to(receiver: Receiver, *events: str, **retry: float) -> Webhook:
    return Webhook(url=receiver.url, events=events, retry={**QUICKLY, **retry})


def told(system: System, task_id: str) -> list[TaskSummary]:
    return system.records.deliveries(system.records.get(task_id))


def delivered(system: System, task_id: str) -> TaskDetail:
    """The latest delivery of a task, once it has ended."""
    wait_until(lambda: told(system, task_id), "there is a delivery")
    return system.ended(told(system, task_id)[0].id)


def test_a_delivery_carries_the_result_and_a_valid_signature(working: System, receiver: Receiver) -> None:
    task = working.submit("echo", '{"sum": 3, "text": "schön"}', webhook=to(receiver))
    done = delivered(working, task)
    assert done.summary.state is S.COMPLETED
    assert done.result["status"] == 204
    [(headers, body)] = receiver.got
    assert genuine(headers, body)
    assert not genuine(headers, body + b" ")
    assert not genuine({**headers, "webhook-timestamp": "1"}, body)
    assert abs(time.time() - int(headers["webhook-timestamp"])) < 60
    assert headers["webhook-id"] == done.summary.id
    [said] = receiver.bodies()
    assert said.pop("ended_at").endswith("Z")
    assert said == {
        "event": "task.completed",
        "task_id": task,
        "type": "echo",
        "status": "completed",
        "attempts": 1,
        "result": {"sum": 3, "text": "schön"},
        "result_left_out": False,
        "error": None,
        "reason": None,
    }


def test_each_secret_signs_so_that_secrets_can_be_changed(working: System, receiver: Receiver) -> None:
    delivered(working, working.submit("echo", "1", webhook=to(receiver)))
    [(headers, _)] = receiver.got
    assert [each[:3] for each in headers["webhook-signature"].split(" ")] == ["v1,", "v1,"]


def test_a_failure_a_cancel_and_an_expiry_are_told_with_their_reason(system: System, receiver: Receiver) -> None:
    failed = system.submit("fail", retry={"max_retries": 0}, webhook=to(receiver))
    cancelled = system.submit("echo", "1", delay=timedelta(hours=1), webhook=to(receiver))
    expired = system.submit("echo", "1", expires_in=timedelta(microseconds=1), webhook=to(receiver))
    child = system.submit("echo", "1", parents=(Parent(task_id=cancelled, on=On.SUCCESS),), webhook=to(receiver))
    system.queues.cancel(cancelled, "not needed")
    late = system.submit("echo", "1", parents=(Parent(task_id=cancelled, on=On.SUCCESS),), webhook=to(receiver))
    system.start_worker()
    for each in (failed, cancelled, expired, child, late):
        assert delivered(system, each).summary.state is S.COMPLETED
    said = {each["task_id"]: each for each in receiver.bodies()}
    assert said[failed]["event"] == "task.failed"
    assert said[failed]["error"].keys() == {"type", "message"}
    assert (said[cancelled]["status"], said[cancelled]["reason"]) == ("cancelled", "not needed")
    assert said[expired]["status"] == "expired"
    assert said[child]["status"] == said[late]["status"] == "cancelled"


def test_only_the_ends_that_were_asked_for_are_told(working: System, receiver: Receiver) -> None:
    quiet = working.submit("echo", "1", webhook=to(receiver, "failed"))
    loud = working.submit("echo", "2", webhook=to(receiver, "completed", "failed"))
    delivered(working, loud)
    assert working.ended(quiet).deliveries == 0
    assert [each["task_id"] for each in receiver.bodies()] == [loud]


def test_what_a_host_inside_answers_is_not_shown(working: System, receiver: Receiver) -> None:
    receiver.answers = [(500, {"Content-Length": "6"}, b"s3cr3t")]
    dead = delivered(working, working.submit("echo", "1", webhook=to(receiver, max_retries=0)))
    assert "answered 500" in str(dead.summary.error)
    assert "s3cr3t" not in str(dead)


def test_what_a_host_inside_says_that_is_no_http_is_not_shown_either(working: System) -> None:
    with saying(b"secret-of-an-inner-host ready\r\n") as port:
        hook = Webhook(url=f"http://127.0.0.1:{port}/", retry={"max_retries": 0})
        dead = delivered(working, working.submit("echo", "1", webhook=hook))
    assert "did not send a valid HTTP response (BadStatusLine)" in str(dead.summary.error)
    assert "secret-of-an-inner-host" not in str(dead)


@pytest.mark.parametrize("before", [b"", b"HTTP/1.1 200 OK\r\nX-A: "])
def test_an_answer_that_drips_in_is_not_waited_for(before: bytes) -> None:
    with dripping(before) as port:
        connection = Connection(EgressPolicy.of((), (), ("127.0.0.0/8",)))
        sending = partial(connection.send, f"http://127.0.0.1:{port}/", "POST", b"{}", {})
        with pytest.raises(CallFailed, match=r"took longer than 0\.5 s"):
            asyncio.run(in_thread(connection, sending, within=0.5))


def test_a_large_result_is_left_out_and_that_is_said(working: System, receiver: Receiver) -> None:
    delivered(working, working.submit("echo", f'"{"x" * 100_000}"', webhook=to(receiver)))
    [said] = receiver.bodies()
    assert (said["result"], said["result_left_out"]) == (None, True)


def test_an_unwell_receiver_is_tried_again_with_the_same_id_and_content(working: System, receiver: Receiver) -> None:
    receiver.answers = [
        (500, {}, b""),
        (503, {"Retry-After": "0"}, b""),
        (302, {"Location": receiver.url + "/elsewhere"}, b""),
    ]
    done = delivered(working, working.submit("echo", "1", webhook=to(receiver)))
    assert done.summary.state is S.COMPLETED
    assert [each.outcome for each in done.attempts] == ["failed", "failed", "failed", "completed"]
    assert "a redirect is not followed" in str(done.attempts[2].error)
    assert len({(headers["webhook-id"], body) for headers, body in receiver.got}) == 1


@pytest.mark.parametrize(
    ("says", "seconds"),
    [("7", 7), ("0", 1), ("99999", 3600), ("\u00b2", None), ("9" * 5000, None), ("-1", None), ("soon", None)],
)
def test_a_receiver_says_when_to_come_again_in_seconds_and_within_reason(
    receiver: Receiver, says: str, seconds: int | None
) -> None:
    receiver.answers = [(503, {"Retry-After": says}, b"")]
    news = Notification(
        url=receiver.url, event="completed", message="m", task_id="t", task_type="x", attempts=1, ended_at="now"
    )
    with pytest.raises(RetryLater if seconds else DeliveryFailed, match="answered 503") as refused:
        deliver(news, Connection(EgressPolicy.of((), (), ("127.0.0.0/8",))), (b"secret",))
    assert getattr(refused.value, "delay", None) == (timedelta(seconds=seconds) if seconds else None)


def test_a_receiver_that_is_down_ends_in_the_dead_letters_and_can_be_told_again(working: System) -> None:
    port = free_port()
    hook = Webhook(url=f"http://127.0.0.1:{port}/", retry={**QUICKLY, "max_retries": 2})
    task = working.submit("echo", "1", webhook=hook)
    dead = delivered(working, task)
    assert dead.summary.state is S.FAILED
    assert len(dead.attempts) == 3
    assert dead.summary.error is not None
    assert "ConnectionRefusedError" in dead.summary.error.message
    assert working.records.state(task) is S.COMPLETED
    with receiving(port) as receiver:
        assert redeliver(working.queues.scripts, dead.summary.id) == dead.summary.id
        assert working.ended(dead.summary.id).summary.state is S.COMPLETED
        again = redeliver(working.queues.scripts, dead.summary.id)
        assert again != dead.summary.id
        assert working.ended(again).summary.state is S.COMPLETED
        assert [each["task_id"] for each in receiver.bodies()] == [task, task]
        assert {headers["webhook-id"] for headers, _ in receiver.got} == {dead.summary.id}
    assert [each.id for each in told(working, task)] == [again, dead.summary.id]


def test_what_is_no_delivery_or_has_not_ended_is_not_sent_again(system: System, receiver: Receiver) -> None:
    task = system.submit("echo", "1", delay=timedelta(hours=1), webhook=to(receiver))
    with pytest.raises(TaskNotFound):
        redeliver(system.queues.scripts, task)
    system.queues.cancel(task, "no")
    with pytest.raises(IllegalTransition, match="already in progress"):
        redeliver(system.queues.scripts, told(system, task)[0].id)


def test_a_dead_letter_that_is_retried_is_told_of_again(working: System, receiver: Receiver) -> None:
    task = working.submit("fail", retry={"max_retries": 0}, webhook=to(receiver))
    first = delivered(working, task).summary.id
    working.dead_letters.requeue(task)
    wait_until(lambda: len(told(working, task)) == 2, "it was told a second time")
    assert delivered(working, task).summary.id != first
    assert [each["status"] for each in receiver.bodies()] == ["failed", "failed"]


@pytest.mark.parametrize("url", ["http://127.0.0.2.nip.invalid/", "http://10.0.0.1/", "http://[::ffff:127.0.0.1]/"])
def test_the_worker_checks_webhook_addresses_again(system: System, url: str) -> None:
    system.start_worker(WEBHOOK_ALLOW="")
    webhook = Webhook(url=url, retry={"max_retries": 0})
    dead = delivered(system, system.submit("echo", "1", webhook=webhook))
    assert dead.summary.state is S.FAILED
    assert len(dead.attempts) == 1


def test_an_end_that_an_earlier_version_brought_about_is_told_by_the_recovery(
    system: System, receiver: Receiver
) -> None:
    task = system.submit("echo", "1", webhook=to(receiver))
    relations = system.redis.hget(keys.rq_job(task), "relations")
    system.redis.hdel(keys.rq_job(task), "relations")  # by which today's scripts see that there is something to do
    system.queues.cancel(task, "no")
    system.redis.hset(keys.rq_job(task), "relations", relations)
    assert told(system, task) == []
    for expected in ({"untold": 1}, {}):
        system.redis.delete(keys.RECOVERY_CURSOR)
        assert maintenance.check_consistency(system.scripts, ["normal"], 1_000_000, 1000, FencingToken())[1] == expected
    assert len(told(system, task)) == 1


def test_a_worker_killed_between_end_and_delivery_loses_nothing(system: System, receiver: Receiver) -> None:
    """The worker that ends the tasks is killed at once; a second one finds every delivery."""
    first = system.start_worker(WEBHOOK_SECRETS="")
    system.start_housekeeper()
    tasks = system.submit_many([("echo", str(number)) for number in range(40)], webhook=to(receiver))
    wait_until(lambda: system.records.counts()[S.COMPLETED] >= 10, "some have ended")
    first.send_signal(signal.SIGKILL)
    first.wait()
    system.start_worker()
    for each in tasks:
        assert delivered(system, each).summary.state is S.COMPLETED
    assert {each["task_id"] for each in receiver.bodies()} == set(tasks)
