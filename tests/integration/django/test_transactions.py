"""Tasks are submitted when a transaction commits, and not when it is rolled back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from firmq import Accepted, ClientError, TaskState, task, use_client
from firmq.worker.handlers.registry import Registry


class Submitted:
    """A client that remembers what was submitted."""

    def __init__(self) -> None:
        self.data: list[Any] = []

    def submit(self, task_type: str, data: Any = None, **options: Any) -> Accepted:
        self.data.append((data, options.get("priority")))
        return Accepted(task_id="1", status=TaskState.PENDING, type=task_type, queue="normal")


@task("send-invoice", registry=Registry())
def send_invoice(order: int) -> None: ...


@pytest.fixture
def submitted(django_project: str) -> Iterator[list[Any]]:
    client = Submitted()
    before = use_client(client)
    yield client.data
    use_client(*before)


def test_a_commit_submits_the_tasks_of_its_transaction(submitted: list[Any]) -> None:
    from django.db import transaction

    from firmq.django import submit_on_commit

    with transaction.atomic():
        submit_on_commit(send_invoice, order=7)
        submit_on_commit(send_invoice.options(priority="high"), 8)
        assert submitted == []
    assert submitted == [({"order": 7}, None), ({"order": 8}, "high")]


def test_a_rollback_submits_nothing(submitted: list[Any]) -> None:
    from django.db import transaction

    from firmq.django import submit_on_commit

    with transaction.atomic():
        transaction.set_rollback(True)
        submit_on_commit(send_invoice, order=7)
    assert submitted == []


def test_without_a_transaction_it_is_submitted_at_once(submitted: list[Any]) -> None:
    from firmq.django import submit_on_commit

    submit_on_commit(send_invoice, order=7)
    assert submitted == [({"order": 7}, None)]


def test_invalid_arguments_are_refused_before_the_commit(submitted: list[Any]) -> None:
    from django.db import transaction

    from firmq.django import submit_on_commit

    with transaction.atomic():
        with pytest.raises(ValidationError):
            submit_on_commit(send_invoice, order="seven")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            submit_on_commit(send_invoice)  # type: ignore[call-arg]
    assert submitted == []


def test_a_submission_that_fails_after_the_commit_is_logged(
    django_project: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.contrib.auth.models import User
    from django.db import transaction

    from firmq.django import submit_on_commit
    from tests.support.django_project import tasks

    monkeypatch.setenv("FIRMQ_URL", "redis://127.0.0.1:1")
    with transaction.atomic():
        user = User.objects.create_user("ann")
        submit_on_commit(send_invoice, order=7)
        submit_on_commit(tasks.add, 7)
    user.delete()  # it was committed
    failed = [each.getMessage() for each in caplog.records if each.name == "firmq.django.transactions"]
    assert len(failed) == 2, failed
    with pytest.raises(ClientError), transaction.atomic():
        transaction.on_commit(send_invoice.prepare(order=7))


def test_a_task_of_django_is_submitted_by_a_commit(submitted: list[Any]) -> None:
    from django.db import transaction

    from firmq.django import submit_on_commit
    from tests.support.django_project import tasks

    with transaction.atomic():
        submit_on_commit(tasks.add, 7)
        submit_on_commit(tasks.add.using(priority=10), a=8)
        with pytest.raises(TypeError, match="Unsupported type"):
            submit_on_commit(tasks.add, object())  # type: ignore[arg-type]
        assert submitted == []
    assert [(data["args"], data["kwargs"], priority) for data, priority in submitted] == [
        ([7], {}, None),
        ([], {"a": 8}, "high"),
    ]
