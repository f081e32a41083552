"""Tasks are submitted when a transaction commits, and not when it is rolled back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from taskqueue import Accepted, TaskState, task, use_client
from taskqueue.worker.handlers.registry import Registry


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

    from taskqueue.django import submit_on_commit

    with transaction.atomic():
        submit_on_commit(send_invoice, order=7)
        submit_on_commit(send_invoice.options(priority="high"), 8)
        assert submitted == []
    assert submitted == [({"order": 7}, None), ({"order": 8}, "high")]


def test_a_rollback_submits_nothing(submitted: list[Any]) -> None:
    from django.db import transaction

    from taskqueue.django import submit_on_commit

    with transaction.atomic():
        transaction.set_rollback(True)
        submit_on_commit(send_invoice, order=7)
    assert submitted == []


def test_without_a_transaction_it_is_submitted_at_once(submitted: list[Any]) -> None:
    from taskqueue.django import submit_on_commit

    submit_on_commit(send_invoice, order=7)
    assert submitted == [({"order": 7}, None)]


def test_invalid_arguments_are_refused_before_the_commit(submitted: list[Any]) -> None:
    from django.db import transaction

    from taskqueue.django import submit_on_commit

    with transaction.atomic():
        with pytest.raises(ValidationError):
            submit_on_commit(send_invoice, order="seven")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            submit_on_commit(send_invoice)  # type: ignore[call-arg]
    assert submitted == []
