"""The client against a gateway, a worker and a housekeeper that run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from firmq.shared.client import Client, Conflict, NotFound, NotInTime, Refused, TaskFailed, TaskState, new_task
from tests.integration.client.conftest import Running
from tests.support.keys import keys


def test_a_submitted_task_gives_its_result(client: Client) -> None:
    accepted = client.submit("echo", {"a": [1, None, "ü"]}, priority="high", tags=["one"], timeout=timedelta(seconds=5))
    assert (accepted.status, accepted.queue, accepted.existing) == ("pending", "high", False)
    assert client.result(accepted.task_id, timeout=120) == {"a": [1, None, "ü"]}


def test_a_task_is_shown_with_everything_in_its_type(client: Client) -> None:
    task = client.submit("echo", 1, tags=["shown"], limit_key="partner", expires_in=60)
    client.wait(task.task_id, 120)
    shown = client.get(task.task_id)
    assert shown.status is TaskState.COMPLETED
    assert shown.data == shown.result == 1
    assert isinstance(shown.created_at, datetime)
    assert shown.created_at.tzinfo
    [attempt] = shown.attempts
    assert attempt.outcome == "completed"
    assert isinstance(attempt.ended_at, datetime)
    assert shown.tags == ("shown",)


def test_a_task_that_fails_raises_why(client: Client) -> None:
    task = client.submit("fail", {"message": "no ink"}, max_retries=0)
    with pytest.raises(TaskFailed, match="RuntimeError: no ink") as failed:
        client.result(task.task_id, 120)
    assert failed.value.ended.status is TaskState.FAILED


def test_waiting_ends_when_the_time_is_over(client: Client) -> None:
    task = client.submit("echo", 1, delay=timedelta(hours=1))
    with pytest.raises(NotInTime, match="scheduled"):
        client.wait(task.task_id, 0.2)
    assert client.cancel(task.task_id, "not needed").status is TaskState.CANCELLED
    with pytest.raises(TaskFailed, match="cancelled"):
        client.result(task.task_id, 5)


def test_a_refusal_says_what_its_problem_document_says(client: Client) -> None:
    with pytest.raises(Refused) as refused:
        client.submit("nonsense", 1)
    assert refused.value.type == "/problems/unknown-task-type"
    assert refused.value.title == "Unknown task type"
    assert "nonsense" in refused.value.detail
    with pytest.raises(Refused) as wrong:
        client.submit("echo", 1, delay=-1, priority="urgent")
    assert {each["field"] for each in wrong.value.errors} == {"delay", "priority"}
    with pytest.raises(NotFound):
        client.get("0" * 26)
    with pytest.raises(ValueError, match="no time zone"):
        client.submit("echo", 1, run_at=datetime(2030, 1, 1))  # noqa: DTZ001  # that is the mistake


def test_a_task_that_has_ended_cannot_be_cancelled(client: Client) -> None:
    task = client.submit("echo", 1)
    client.wait(task.task_id, 120)
    with pytest.raises(Conflict):
        client.cancel(task.task_id)


def test_the_same_key_gives_the_same_task(client: Client) -> None:
    key = str(uuid4())
    first = client.submit("echo", "once", idempotency_key=key)
    assert client.submit("echo", "once", idempotency_key=key).task_id == first.task_id
    with pytest.raises(Refused, match="Idempotency-Key"):
        client.submit("echo", "other", idempotency_key=key)


def test_an_existing_task_with_the_unique_key_is_told_from_a_new_one(client: Client) -> None:
    first = client.submit("echo", 1, unique_key="only", delay=60)
    again = client.submit("echo", 1, unique_key="only", on_conflict="existing", delay=60)
    assert (again.task_id, again.existing) == (first.task_id, True)
    client.cancel(first.task_id)


def test_lists_are_read_to_their_end_over_any_number_of_pages(client: Client, tag: str) -> None:
    feed = client.batch([new_task("echo", n, tags=[tag]) for n in range(450)]).drain()
    assert feed.batch_id
    client.batches.wait(feed.batch_id, 120)
    assert len({each.task_id for each in client.tasks(tag=tag)}) == 450
    found = list(client.batches.tasks(feed.batch_id, status=TaskState.COMPLETED))
    assert len(found) == 450
    assert feed.batch_id in {each.batch_id for each in client.batches}


def test_dead_letters_are_listed_sent_back_and_removed(client: Client) -> None:
    task = client.submit("fail", {"message": "dead"}, max_retries=0).task_id
    client.wait(task, 120)
    assert task in {each.task_id for each in client.dead_letters.find("fail")}
    assert client.dead_letters.retry(task, score=5).status is TaskState.PENDING
    assert client.get(task).score == 5
    assert task in [each.task_id for each in client.tasks(min_score=5, max_score=5)]
    client.wait(task, 120)
    client.dead_letters.delete(task)
    with pytest.raises(NotFound):
        client.dead_letters.retry(task)


def test_queues_are_paused_and_resumed(client: Client) -> None:
    assert client.queues.pause("low", "a test").paused_reason == "a test"
    assert [each.name for each in client.queues.all() if each.paused] == ["low"]
    task = client.submit("echo", 1, priority="low")
    with pytest.raises(NotInTime):
        client.wait(task.task_id, 0.3)
    assert not client.queues.resume("low").paused
    assert client.result(task.task_id, 120) == 1


def test_types_are_paused_until_a_time_and_resumed(client: Client) -> None:
    until = datetime.now(UTC) + timedelta(hours=1)
    paused = client.types.pause("noop", "a test", until=until)
    assert (paused.paused_reason, paused.paused_until) == ("a test", until)
    assert [each.name for each in client.types.all() if each.paused] == ["noop"]
    task = client.submit("noop")
    with pytest.raises(NotInTime):
        client.wait(task.task_id, 0.3)
    with pytest.raises(Refused, match="has passed"):
        client.types.pause("noop", "a test", until=datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(NotFound):
        client.types.pause("unheard-of", "a test")
    assert not client.types.resume("noop").paused
    client.wait(task.task_id, 120)
    assert not client.types.get("noop").paused


def test_schedules_are_made_run_and_removed(client: Client) -> None:
    made = client.schedules.put("nightly", "echo", 5, cron="0 3 * * *", timezone="Europe/Berlin", tags=["n"])
    assert (made.cron, made.timezone, made.paused) == ("0 3 * * *", "Europe/Berlin", False)
    assert len(made.next_times) == 5
    assert client.schedules.pause("nightly", "a test").paused_reason == "a test"
    assert client.result(client.schedules.run("nightly").task_id, 120) == 5
    assert not client.schedules.resume("nightly").paused
    assert [each.name for each in client.schedules] == ["nightly"]
    client.schedules.delete("nightly")
    with pytest.raises(NotFound):
        client.schedules.get("nightly")


def test_schedules_that_cannot_be_read_are_named_as_the_list_is_read(running: Running, client: Client) -> None:
    for name in ("broken", "whole"):
        client.schedules.put(name, "echo", interval=3600)
    running.system.redis.hset(keys.schedule("broken"), "spec", "{")
    found = iter(client.schedules)
    assert found.unreadable == []
    assert [each.name for each in found] == ["whole"]
    assert found.unreadable == ["broken"]
    for name in ("broken", "whole"):
        client.schedules.delete(name)
    assert list(client.schedules) == []


def test_locks_are_shown_and_a_wrong_token_takes_none(client: Client) -> None:
    names = [each.name for each in client.locks.all()]
    assert "recovery" in names
    assert client.locks.get("recovery").lock_key.endswith("recovery")
    with pytest.raises(Conflict):
        client.locks.unlock("recovery", "not-the-token", "a test")
