"""The answers about tasks, byte for byte: names, order, empty values and the form of times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from flask import Flask

from firmq.gateway import present, schemas
from firmq.gateway.http.endpoints import as_json
from firmq.shared.domain.retry import RetryPolicy
from firmq.shared.domain.step import Step, StepKind
from firmq.shared.domain.task import (
    Attempt,
    BatchPlace,
    ErrorInfo,
    On,
    OnParentFailure,
    Outcome,
    Parent,
    Progress,
    TaskDetail,
    TaskState,
    TaskSummary,
    Webhook,
)
from firmq.shared.submission import reading

AT = datetime(2030, 1, 2, 3, 4, 5, 600_000, tzinfo=UTC)
TIME = "2030-01-02T03:04:05.600000Z"
ERROR = ErrorInfo(type="ValueError", message="bad", traceback="Traceback", place="a.py:1")
SUMMARY = TaskSummary(
    id="one", type="t", state=TaskState.PENDING, queue="normal", attempt=0, failures=0, crashes=0, created_at=AT
)
LISTED: dict[str, Any] = {
    "task_id": "one",
    "type": "t",
    "status": "pending",
    "queue": "normal",
    "created_at": TIME,
    "started_at": None,
    "ended_at": None,
    "next_attempt_at": None,
    "attempt": 0,
    "retry_count": 0,
    "crash_count": 0,
    "worker": None,
    "tags": [],
    "progress": None,
    "error": None,
    "submitted_by": None,
    "score": None,
    "archived": False,
    "corrupt": None,
}
SHOWN: dict[str, Any] = {
    **LISTED,
    "data": {"a": 1},
    "result": None,
    "max_retries": 3,
    "timeout_seconds": None,
    "expires_at": None,
    "cancel_reason": None,
    "unique_key": None,
    "limit_key": None,
    "fair_key": None,
    "throttled_by": None,
    "refusal": None,
    "warnings": [],
    "trace_parent": None,
    "depends_on": [],
    "on_parent_failure": None,
    "dependents": [],
    "dependents_count": 0,
    "batch_id": None,
    "batch_index": None,
    "webhook": None,
    "deliveries": [],
    "delivery_of": None,
    "awaits": None,
    "steps": [],
    "attempts": [],
}
POLICY = RetryPolicy(max_retries=3)


@pytest.fixture(autouse=True)
def _context() -> Iterator[None]:
    with Flask(__name__).app_context():
        yield


def text(document: object) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def test_a_task_without_anything() -> None:
    assert as_json(present.detail(TaskDetail(summary=SUMMARY, data={"a": 1}), POLICY)).decode() == text(SHOWN)


@pytest.mark.parametrize("state", TaskState)
def test_a_list(state: TaskState) -> None:
    summary = replace(
        SUMMARY,
        state=state,
        attempt=2,
        failures=1,
        started_at=AT,
        due_at=AT,
        worker="w",
        tags=("a", "b"),
        error=ERROR,
        progress=Progress(fraction=0.5, message="half"),
        submitted_by="shop",
        score=5,
    )
    shown = schemas.TaskList(items=[reading.task(SUMMARY), reading.task(summary)], next_cursor=None)
    other = {
        **LISTED,
        "status": state.value,
        "started_at": TIME,
        "next_attempt_at": TIME,
        "attempt": 2,
        "retry_count": 1,
        "worker": "w",
        "tags": ["a", "b"],
        "progress": {"fraction": 0.5, "message": "half"},
        "error": {"type": "ValueError", "message": "bad", "place": "a.py:1", "traceback": None},
        "submitted_by": "shop",
        "score": 5,
    }
    assert as_json(shown).decode() == text({"items": [LISTED, other], "next_cursor": None})


def test_a_task_with_everything() -> None:
    summary = replace(SUMMARY, error=ERROR, awaits="nap", score=1.5)
    attempt = Attempt(
        number=1,
        worker="w",
        enqueued_at=AT,
        started_at=AT + timedelta(seconds=1),
        ended_at=AT + timedelta(seconds=1.25),
        outcome=Outcome.FAILED,
        error=ERROR,
        retry_delay=timedelta(seconds=2),
        app_version="7",
        logs=("x",),
    )
    step = Step(name="pay", kind=StepKind.RESULT, value=1, attempt=1, started_at=AT, ended_at=AT, size=3)
    found = TaskDetail(
        summary=summary,
        data={"a": 1},
        attempts=(attempt,),
        timeout=timedelta(seconds=60),
        retry={"max_retries": 7},
        expires_at=AT,
        unique_key="u",
        parents=(Parent(task_id="p", on=On.END),),
        on_parent_failure=OnParentFailure.WAIT,
        batch=BatchPlace(batch_id="b", index=4),
        limit_key="l",
        fair_key="f",
        children=("c",),
        children_count=1,
        webhook=Webhook(url="https://a.example/", events=("failed",)),
        delivery_of="d",
        steps=(step,),
        meta={"traceparent": "00-1"},
    )
    delivery = replace(SUMMARY, id="one-hook-1", attempt=3, due_at=AT, error=ERROR)
    failure = {"type": "ValueError", "message": "bad", "place": "a.py:1", "traceback": "Traceback"}
    shown = {
        **SHOWN,
        "error": failure,
        "score": 1.5,
        "max_retries": 7,
        "timeout_seconds": 60.0,
        "expires_at": TIME,
        "unique_key": "u",
        "limit_key": "l",
        "fair_key": "f",
        "warnings": ["late"],
        "trace_parent": "00-1",
        "depends_on": [{"task_id": "p", "on": "end"}],
        "on_parent_failure": "wait",
        "dependents": ["c"],
        "dependents_count": 1,
        "batch_id": "b",
        "batch_index": 4,
        "webhook": {"url": "https://a.example/", "events": ["failed"]},
        "deliveries": [
            {
                "task_id": "one-hook-1",
                "status": "pending",
                "attempts": 3,
                "created_at": TIME,
                "ended_at": None,
                "next_attempt_at": TIME,
                "error": {**failure, "traceback": None},
            }
        ],
        "delivery_of": "d",
        "awaits": "nap",
        "steps": [
            {
                "name": "pay",
                "kind": "result",
                "attempt": 1,
                "tries": 1,
                "started_at": TIME,
                "ended_at": TIME,
                "seconds": 0.0,
                "size_bytes": 3,
            }
        ],
        "attempts": [
            {
                "number": 1,
                "worker": "w",
                "enqueued_at": TIME,
                "started_at": "2030-01-02T03:04:06.600000Z",
                "ended_at": "2030-01-02T03:04:06.850000Z",
                "wait_seconds": 1.0,
                "run_seconds": 0.25,
                "outcome": "failed",
                "error": failure,
                "retry_delay_seconds": 2.0,
                "trace_id": None,
                "app_version": "7",
                "logs": ["x"],
            }
        ],
    }
    assert as_json(present.detail(found, POLICY, [delivery], ["late"])).decode() == text(shown)


def test_the_end_of_a_task() -> None:
    found = TaskDetail(summary=replace(SUMMARY, state=TaskState.COMPLETED), data=None, result=[1])
    ended = {"task_id": "one", "status": "completed", "result": [1], "error": None}
    assert as_json(present.result(found)).decode() == text(ended)
