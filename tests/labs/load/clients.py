"""Clients of the REST API at a fixed rate, or as fast as they are answered, and what each of them was told."""

from __future__ import annotations

import http.client
import json
import threading
import time
import uuid
from array import array
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from tests.labs.faults.clients import NO_ANSWER, PATIENCE, UNDECIDED, Answer, decided

SHARES = {"plain": 90, "retried": 6, "dead": 4}
"""In a hundred tasks: those that complete at once, those that fail once before, those that end as dead letters."""
TERMS: dict[str, dict[str, Any]] = {"plain": {}, "retried": {}, "dead": {"max_retries": 0}}
BATCH = 50
BATCH_EVERY = 5
"""Of so many requests one is a batch; every other one has an Idempotency-Key, one of the rest is sent twice."""
TASKS_PER_REQUEST = (BATCH_EVERY - 1 + BATCH) / BATCH_EVERY
REMEMBERED = 25_000
"""So many of its latest tasks a client knows by id: more than Redis keeps."""


@dataclass
class Ledger:
    """What one client was told."""

    accepted: Counter[str] = field(default_factory=Counter)
    """Tasks, by what is to become of them."""
    unanswered: int = 0
    """Tasks of which nobody knows whether they are stored."""
    requests: int = 0
    moments: array[float] = field(default_factory=lambda: array("d"))
    """When each request was to be sent."""
    times: array[float] = field(default_factory=lambda: array("d"))
    """Seconds from then to its answer."""
    latest: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    """Ids of tasks, and what is to become of them."""
    odd: list[str] = field(default_factory=list)

    def note(self, task_id: str, kind: str) -> None:
        self.accepted[kind] += 1
        self.latest.append((task_id, kind))


class Client(threading.Thread):
    """Sends single tasks and small batches on one connection.

    With a rate each request has its moment, also when the last one took longer, and its time is counted from that
    moment on. Without one the next is sent as soon as the last is answered and `may_send` says so.
    """

    def __init__(
        self, number: int, port: int, rate: float | None = None, may_send: Callable[[], bool] = lambda: True
    ) -> None:
        super().__init__(name=f"client {number}", daemon=True)
        self.ledger = Ledger()
        self.stopping = threading.Event()
        self._dice = Random(number)
        self._pause = 1 / rate if rate else 0.0
        self._late = self._dice.random() * self._pause
        self._may_send = may_send
        self._port = port
        self._connection: http.client.HTTPConnection | None = None

    def run(self) -> None:
        moment = time.monotonic() + self._late
        while not self.stopping.wait(max(0.0, moment - time.monotonic()) if self._pause else 0.0):
            if not self._may_send():
                time.sleep(0.005)
                continue
            self._one(moment if self._pause else time.monotonic())
            moment += self._pause
        if self._connection:
            self._connection.close()

    def _one(self, moment: float) -> None:
        ledger = self.ledger
        ledger.requests += 1
        if ledger.requests % BATCH_EVERY == 0:
            self._batch()
        else:
            self._single()
        ledger.moments.append(moment)
        ledger.times.append(time.monotonic() - moment)

    def _task(self) -> tuple[str, dict[str, Any]]:
        kind = self._dice.choices(list(SHARES), list(SHARES.values()))[0]
        data = {"sent": time.monotonic(), "failures": int(kind != "plain")}
        return kind, {"type": "load", "data": data, **TERMS[kind]}

    def _single(self) -> None:
        kind, body = self._task()
        key = uuid.uuid4().hex if self.ledger.requests % 2 else None
        answer = self._send("/tasks", body, key)
        if answer.status == 202:
            self.ledger.note(answer.body["task_id"], kind)
            if key and self.ledger.requests % 9 == 0:
                self._repeat(body, key, answer)
        else:
            self._not_taken(answer, 1)

    def _repeat(self, body: dict[str, Any], key: str, first: Answer) -> None:
        again = self._send("/tasks", body, key)
        if again.status not in UNDECIDED and again.body.get("task_id") != first.body["task_id"]:
            self.ledger.odd.append(f"sent again: {first.body} became {again.body}")

    def _batch(self) -> None:
        tasks = [self._task() for _ in range(BATCH)]
        answer = self._send("/tasks/batch", {"tasks": [body for _, body in tasks]}, uuid.uuid4().hex)
        if answer.status != 202:
            self._not_taken(answer, BATCH)
            return
        for (kind, _), item in zip(tasks, answer.body["items"], strict=True):
            self.ledger.note(item["task_id"], kind)

    def _not_taken(self, answer: Answer, tasks: int) -> None:
        if answer.status in UNDECIDED:
            self.ledger.unanswered += tasks
        else:
            self.ledger.odd.append(f"answered {answer.status}: {str(answer.body)[:500]}")

    def _send(self, path: str, body: object, key: str | None) -> Answer:
        """With a key again until it is decided; without one once, as nobody may send it twice."""
        give_up = time.monotonic() + 6 * PATIENCE
        while True:
            answer = self._ask(path, json.dumps(body), key)
            if decided(answer) or key is None or time.monotonic() > give_up:
                return answer
            time.sleep(0.2)

    def _ask(self, path: str, text: str, key: str | None) -> Answer:
        headers = {"Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})}
        self._connection = self._connection or http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
        try:
            self._connection.request("POST", path, text, headers)
            answer = self._connection.getresponse()
            return Answer(answer.status, json.loads(answer.read()))
        except (OSError, http.client.HTTPException, ValueError):
            with suppress(OSError):
                self._connection.close()
            self._connection = None
            return Answer(NO_ANSWER, {})


class Stoppable(Protocol):
    """A thread that ends when it is told to."""

    stopping: threading.Event

    def join(self) -> None: ...


def stop_all(threads: Sequence[Stoppable]) -> None:
    """No more; returns when each has its last answer."""
    for thread in threads:
        thread.stopping.set()
    for thread in threads:
        thread.join()
