"""Driving a gateway: submitting, and playing the worker where a test needs a task to get on."""

from __future__ import annotations

import base64
import json
from typing import Any

from flask import Flask
from redis import Redis
from werkzeug.test import TestResponse

from firmq.shared.config.settings import Settings
from firmq.shared.redis.rows import Value
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores import maintenance
from tests.support.attempt_ends import claiming, ended, report
from tests.support.keys import keys

QUEUES = tuple(Settings().queues)
LEASE_US = 10_000_000


class Gateway:
    """An app, and what happens behind its back."""

    def __init__(self, app: Flask, redis: Redis) -> None:
        self.app = app
        self.redis = redis
        self.http = app.test_client()
        self.scripts = Scripts(redis)
        self.claims = 0

    def submit(self, **body: Any) -> str:
        """A task that is taken; its id."""
        answer = self.http.post("/tasks", json={"type": "process", "data": None, **body})
        assert answer.status_code == 202, answer.text
        return str(answer.json["task_id"])  # type: ignore[index]  # a 202 has a body

    def show(self, task_id: str) -> Any:
        return self.http.get(f"/tasks/{task_id}").json

    def start(self) -> list[str]:
        """A worker takes everything that waits."""
        self.claims += 1
        turns = [part for queue in QUEUES for part in (queue, 100)]
        reply = self.scripts.call("claim", *claiming("w1", f"token-{self.claims}", LEASE_US, 100, 1 << 24, *turns))
        return [row[0].decode() for row in reply[3]]

    def complete(self, task_id: str, result: Any = None) -> None:
        self._report(task_id, "completed", payload=base64.b64encode(json.dumps(result).encode()))

    def fail(self, task_id: str, message: str = "it broke") -> None:
        """A worker takes what waits, and this task fails permanently."""
        assert task_id in self.start()
        error = {"type": "ValueError", "message": message, "place": "shop.pay", "traceback": "Traceback ..."}
        self._report(task_id, "failed", error=error)

    def retry_later(self, task_id: str, seconds: float = 5) -> None:
        error = {"type": "ValueError", "message": "not yet", "traceback": "Traceback ..."}
        self._report(task_id, "retrying", error=error, delay_us=int(seconds * 1_000_000))

    def make_due(self, task_id: str, queue: str = "normal") -> None:
        """The pause before its next attempt is over, and it is taken to its queue."""
        self.redis.zadd(keys.retrying(queue), {task_id: 1}, xx=True)
        assert maintenance.promote(self.scripts, queue, 10)[0] == 1

    def _report(
        self, task_id: str, kind: str, *, error: Any = None, delay_us: int = 0, payload: bytes | str = ""
    ) -> None:
        seconds, us = self.redis.time()
        now = seconds * 1_000_000 + us
        record = {
            "outcome": "completed" if kind == "completed" else "failed",
            "worker": "w1",
            "enqueued_at": now - 3_000_000,
            "started_at": now - 2_000_000,
            "ended_at": now,
            "error": error,
            "retry_delay": delay_us / 1_000_000 if delay_us else None,
            "logs": ["one line"],
        }
        fields: dict[str, Value | None] = {"error": json.dumps(error)} if error else {"result": payload}
        token = f"token-{self.claims}"
        if kind == "retrying":
            fields["delay_us"] = delay_us
        assert report(self.scripts, ended(task_id, token, kind, json.dumps(record), **fields), worker="w1") == [1]


def problem(answer: TestResponse, status: int, slug: str) -> Any:
    """The problem document of an answer that must be one."""
    assert answer.status_code == status, answer.text
    assert answer.content_type == "application/problem+json"
    body = json.loads(answer.data)
    assert body["type"] == f"/problems/{slug}"
    assert body["status"] == status
    assert body["detail"]
    assert body["request_id"] == answer.headers["X-Request-ID"]
    return body
