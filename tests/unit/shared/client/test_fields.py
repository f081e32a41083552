"""The client has a field for everything that a gateway answers."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from pydantic import BaseModel

from firmq.gateway import schemas
from firmq.gateway.routes.limits import LimitView
from firmq.shared.client import LimitStatus, QueueStatus, TaskDetail, Webhook, WorkerStatus
from firmq.shared.client.answers import read


@pytest.mark.parametrize(
    ("view", "value"),
    [
        (schemas.WorkerView, WorkerStatus),
        (schemas.QueueView, QueueStatus),
        (LimitView, LimitStatus),
    ],
)
def test_no_field_is_missing(view: type[BaseModel], value: Any) -> None:
    assert set(view.model_fields) - {each.name for each in fields(value)} == set()


def test_deliveries_are_typed() -> None:
    made = {"task_id": "d", "status": "failed", "attempts": 2, "error": {"type": "E", "message": "m"}}
    task = {
        "task_id": "a",
        "type": "t",
        "status": "completed",
        "queue": "normal",
        "webhook": {"url": "https://a", "events": []},
    }
    found = read(TaskDetail, {**task, "created_at": None, "attempt": 1, "deliveries": [made]})
    assert found.webhook == Webhook(url="https://a", events=())
    assert (found.deliveries[0].status, found.deliveries[0].error.message) == ("failed", "m")  # type: ignore[union-attr]
