"""Clients of the REST API that go on whatever happens, and write down what they were told."""

from __future__ import annotations

import http.client
import json
import threading
import time
import uuid
from collections import deque
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.labs.faults import kinds
from tests.labs.faults.ledger import Asked, Deed, Ledger

PATIENCE = 10.0
"""Seconds until a client gives up waiting for an answer."""
NO_ANSWER = 0
UNDECIDED = frozenset({NO_ANSWER, 503})
"""Nobody knows whether anything was done: a task may be stored."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and JSON; status 0 when nobody answered."""

    status: int
    body: dict[str, Any]


def call(address: str, method: str, path: str, body: object = None, key: str | None = None) -> Answer:
    """One request to `host:port` on a connection of its own."""
    headers = {"Content-Type": "application/json"} if body is not None else {}
    if key:
        headers["Idempotency-Key"] = key
    try:
        with closing(http.client.HTTPConnection(address, timeout=PATIENCE)) as connection:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
            return Answer(answer.status, json.loads(text) if "json" in answer.headers["Content-Type"] else {})
    except (OSError, http.client.HTTPException, ValueError):
        return Answer(NO_ANSWER, {})


class Client(threading.Thread):
    """Submits tasks of all kinds, cancels some, sends some dead letters back."""

    def __init__(self, number: int, seed: int, gateways: dict[str, str], ledger: Ledger, pause: float) -> None:
        super().__init__(name=f"client {number}", daemon=True)
        self.dice = Random(f"{seed}-{number}")
        self.gateways = gateways
        self.ledger = ledger
        self.pause = pause
        self.shares: Mapping[str, float] = kinds.SHARES
        self.stopping = threading.Event()
        self.give_up_at = float("inf")
        self.known: deque[str] = deque(maxlen=30)
        self.to_cancel: deque[tuple[float, str]] = deque()
        """Endless tasks, each with the moment from which on it is not wanted any more."""
        self.first = [kind for kind in kinds.SHARES if kind != "crash" or number == 0]
        self.dice.shuffle(self.first)

    def run(self) -> None:
        while not self.stopping.wait(self.dice.uniform(0, 2 * self.pause)):
            kind = self.first.pop() if self.first else kinds.choose(self.dice, self.shares)
            self._batch() if kind == "batch" else self._task(kind)
            self._something_else()
            self._cancel_endless()
        while self.to_cancel and time.monotonic() < self.give_up_at:
            self._cancel_endless()
            time.sleep(0.2)

    def stop(self, patience: float) -> None:
        """No more; what has a key, or cancels an endless task, is sent until it is answered, for so many seconds."""
        self.give_up_at = time.monotonic() + patience
        self.stopping.set()

    # --- submitting ---

    def _task(self, kind: str) -> None:
        body = kinds.about(kind, self.dice, list(self.known))
        key = uuid.uuid4().hex if self.dice.random() < 0.6 else None
        asked = self.ledger.ask(kind, body, keyed=key is not None)
        body["data"]["n"] = asked.n
        gateway, answer = self._send("POST", "/tasks", body, key)
        self._note(asked, answer, gateway)

    def _note(self, asked: Asked, answer: Answer, gateway: str) -> None:
        match answer.status:
            case 202:
                task_id = answer.body["task_id"]
                self.ledger.told(asked, "accepted", task_id, gateway)
                if asked.kind == "endless":
                    self.to_cancel.append((time.monotonic() + self.dice.uniform(0.5, 3.0), task_id))
                else:
                    self.known.append(task_id)
            case 200 if asked.kind == "unique":
                self.ledger.told(asked, "existing", answer.body["task_id"], gateway)
            case 409 if asked.kind == "unique":
                self.ledger.told(asked, "refused")
            case 422 if asked.kind in kinds.VERSIONED:
                self.ledger.told(asked, "refused")
            case 429:
                self.ledger.told(asked, "refused")
            case status if status in UNDECIDED:
                self.ledger.told(asked, "")
            case status:
                self.ledger.strange(f"{asked.kind} was answered {status}: {answer.body}")

    def _batch(self) -> None:
        size = self.dice.randint(3, 12)
        bodies = [
            kinds.about(self.dice.choice(["quick", "quick", "flaky", "slow"]), self.dice, []) for _ in range(size)
        ]
        key = uuid.uuid4().hex if self.dice.random() < 0.7 else None
        asked = [self.ledger.ask(each["data"]["kind"], each, keyed=key is not None) for each in bodies]
        body = {**kinds.batch_terms(self.dice), "tasks": bodies}
        if key:
            # What follows a batch waits for its end, which a sender who can send it again brings about.
            body["then"] = kinds.about("follower", self.dice, [])
            asked.append(self.ledger.ask("follower", body["then"], keyed=True))
        for each in asked:
            each.about["data"]["n"] = each.n
        gateway, answer = self._send("POST", "/tasks/batch", body, key)
        if answer.status not in (202, 207):
            for each in asked:
                self.ledger.told(each, "refused" if answer.status == 429 else "")
            if answer.status not in {*UNDECIDED, 429}:
                self.ledger.strange(f"a batch was answered {answer.status}: {answer.body}")
            return
        self._note_batch(asked, answer.body, gateway)

    def _note_batch(self, asked: list[Asked], said: dict[str, Any], gateway: str) -> None:
        for each, item in zip(asked, said["items"], strict=False):
            if "problem" not in item:
                self.ledger.told(each, "accepted", item["task_id"], gateway)
            else:
                self.ledger.told(each, "refused" if item["problem"]["status"] == 429 else "")
        self.ledger.batches[said["batch_id"]] = [each.n for each in asked if each.said == "accepted"]
        if asked[-1].kind == "follower":
            self.ledger.told(asked[-1], "follows", gateway=gateway)
            self.ledger.followers[said["batch_id"]] = asked[-1].n

    # --- what else people do ---

    def _something_else(self) -> None:
        if self.known and self.dice.random() < 0.06:
            self._do("cancel", "DELETE", f"/tasks/{self.dice.choice(list(self.known))}")
        if self.dice.random() < 0.03:
            _, page = self._once("GET", "/dlq/failed-tasks?limit=5")
            for item in page.body.get("items", [])[:1]:
                self._do("retry", "POST", f"/dlq/failed-tasks/{item['task_id']}/retry")

    def _cancel_endless(self) -> None:
        if self.to_cancel and self.to_cancel[0][0] < time.monotonic():
            _, task_id = self.to_cancel.popleft()
            if self._do("cancel", "DELETE", f"/tasks/{task_id}") in UNDECIDED:
                self.to_cancel.append((time.monotonic(), task_id))

    def _do(self, what: str, method: str, path: str) -> int:
        sent = time.monotonic_ns()
        _, answer = self._once(method, path)
        task_id = path.split("/")[3 if what == "retry" else 2]
        self.ledger.did(Deed(what, task_id, sent, time.monotonic_ns(), answer.status))
        if answer.status not in (200, 202, 404, 409, *UNDECIDED):
            self.ledger.strange(f"{what} was answered {answer.status}: {answer.body}")
        return answer.status

    # --- the way there ---

    def _once(self, method: str, path: str, body: object = None, key: str | None = None) -> tuple[str, Answer]:
        name = self.dice.choice(list(self.gateways))
        return name, call(self.gateways[name], method, path, body, key)

    def _send(self, method: str, path: str, body: object, key: str | None) -> tuple[str, Answer]:
        """With a key again and again until it is decided; without one once, as nobody may send it twice."""
        while True:
            name, answer = self._once(method, path, body, key)
            if decided(answer) or key is None or time.monotonic() > self.give_up_at:
                return name, answer
            time.sleep(0.2)


def decided(answer: Answer) -> bool:
    """Whether it says of everything what became of it; if not, a request with a key is sent again."""
    if answer.status == 409:
        return "in-progress" not in str(answer.body.get("type", ""))
    unclear = any(item.get("problem", {}).get("status") == 503 for item in answer.body.get("items", []))
    return answer.status not in UNDECIDED and not unclear
