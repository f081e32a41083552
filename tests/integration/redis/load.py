"""Callers of a gateway that do not stop when it refuses, and note what each of them was told and how fast."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tests.support.harness import System, wait_until

NO_ANSWER = 0


@dataclass(frozen=True, slots=True)
class Told:
    """One request: when it was answered, how, and after how long."""

    at: float
    status: int
    seconds: float
    task_id: str = ""


class Callers:
    """So many threads that submit one task after the other."""

    def __init__(self, port: int, body: object, threads: int = 3, pause: float = 0.005) -> None:
        self.port = port
        self.body = json.dumps(body)
        self.pause = pause
        self.told: list[Told] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._call) for _ in range(threads)]

    def __enter__(self) -> Self:
        for each in self._threads:
            each.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for each in self._threads:
            each.join()

    @property
    def accepted(self) -> list[Told]:
        return [each for each in self.told if each.status == 202]

    @property
    def statuses(self) -> Counter[int]:
        return Counter(each.status for each in self.told)

    def _call(self) -> None:
        while not self._stop.wait(self.pause):
            began = time.monotonic()
            try:
                status, task_id = self._submit()
            except (OSError, http.client.HTTPException):
                status, task_id = NO_ANSWER, ""
            now = time.monotonic()
            self.told.append(Told(now, status, now - began, task_id))

    def _submit(self) -> tuple[int, str]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)) as connection:
            connection.request("POST", "/tasks", self.body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            said = json.loads(answer.read())
            return answer.status, said.get("task_id", "")


def get(port: int, path: str) -> tuple[int, bytes]:
    """Status and body; (0, b"") when nobody answers."""
    try:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return NO_ANSWER, b""


def post(port: int, path: str, body: object) -> tuple[int, bytes]:
    """Status and body; (0, b"") when nobody answers."""
    try:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return NO_ANSWER, b""


def start_gateway(system: System, port: int, **environment: str) -> None:
    """A gateway that is ready to take tasks."""
    system.start("gateway", GATEWAY_PORT=str(port), GATEWAY_PROCESSES="2", **environment)
    wait_until(lambda: get(port, "/health/ready")[0] == 200, f"the gateway is ready\n{system.logs()}", 60)
