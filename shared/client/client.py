"""The client of a gateway: tasks by HTTP, with types, time limits, and retries that never store twice."""

from __future__ import annotations

import os
import re
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Self, Unpack
from urllib.parse import quote
from uuid import uuid4

from shared.client.answers import Accepted, Ended, Status, Task, TaskDetail, read
from shared.client.feed import BatchFeed
from shared.client.problems import NotInTime, TaskFailed
from shared.client.resources import Batches, DeadLetters, Locks, Pages, Queues, Schedules
from shared.client.tasks import Options, Seconds, plain
from shared.client.transport import Transport
from shared.client.watching import watch
from shared.domain.task import TaskState

DEFAULT_URL = "http://localhost:8000"
LONGEST_WAIT = 30.0
"""Seconds for which a gateway lets a request wait for a result."""
_KEY = re.compile(r"[!-~]*")
"""What a header can hold of a key: no spaces, no line ends, nothing beyond ASCII."""


class Client:
    """Talks to the gateway at `url` (else TASKQUEUE_URL, else localhost:8000). May be used by several threads.

    `api_key` (else TASKQUEUE_API_KEY) is sent with every request, where the gateway asks for one.

    A gateway that is away is tried again, where that is safe, for `patience` seconds: 2 for `submit` and other single
    requests, 30 for what takes its time anyway (`batch`, `wait`, `result`, `watch`), unless one is given for all.
    A connection is made within 2 seconds; once there is one, the answer may take `timeout` seconds.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        timeout: float = 10.0,
        patience: float | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        address = url or os.environ.get("TASKQUEUE_URL") or DEFAULT_URL
        key = (api_key or os.environ.get("TASKQUEUE_API_KEY") or "").strip()
        if not _KEY.fullmatch(key):
            # In words of our own: those of http.client quote the whole of it.
            raise ValueError(
                "the API key holds a space, a line end or a letter that no key has: was it copied together with more?"
            )
        sent = {**({"Authorization": f"Bearer {key}"} if key else {}), **(headers or {})}
        self.transport = Transport(
            address, timeout=timeout, patience=patience, headers=sent, tls=tls, sleep=sleep, clock=clock
        )
        self.batches = Batches(self.transport)
        self.dead_letters = DeadLetters(self.transport)
        self.queues = Queues(self.transport)
        self.schedules = Schedules(self.transport)
        self.locks = Locks(self.transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections that are kept."""
        self.transport.close()

    # --- sending ---

    def submit(
        self, task_type: str, data: Any = None, *, idempotency_key: str | None = None, **options: Unpack[Options]
    ) -> Accepted:
        """Submits a task. When this has returned, the task is kept.

        An Idempotency-Key is made where none is given, so that trying again after a lost answer stores nothing twice.
        """
        body = {"type": task_type, "data": data, **plain(options)}
        headers = {"Idempotency-Key": idempotency_key or str(uuid4())}
        answer = self.transport.ask("POST", "/tasks", body=body, headers=headers)
        return read(Accepted, {**answer.document, "existing": answer.status == 200})

    def batch(
        self,
        tasks: Iterable[Mapping[str, Any]],
        *,
        name: str | None = None,
        max_running: int | None = None,
        stop_on_error: int | None = None,
        then: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> BatchFeed:
        """Sends many tasks, and gives what became of each, in their order.

        A list (any sequence) is sent when this returns. Anything else makes its tasks while the result is iterated over
        (or `drain` is called): memory stays flat, and nothing is sent before. Tasks are made by `new_task`; one may
        depend on another by its place or name when that one comes before it.
        """
        terms = plain({"name": name, "max_running": max_running, "stop_on_error": stop_on_error, "then": then})
        return BatchFeed(self.transport, tasks, terms, idempotency_key or str(uuid4())).send(tasks)

    # --- looking ---

    def get(self, task_id: str) -> TaskDetail:
        """A task with everything on record. Raises NotFound."""
        return read(TaskDetail, self.transport.ask("GET", _path(task_id)).document)

    def tasks(
        self,
        *,
        status: TaskState | str | None = None,
        task_type: str | None = None,
        priority: str | None = None,
        tag: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Iterator[Task]:
        """All tasks that match, the newest first, read page by page."""
        query = {
            "status": status,
            "type": task_type,
            "priority": priority,
            "tag": tag,
            "since": since,
            "until": until,
        }
        return Pages(self.transport, "/tasks", Task, query)

    # --- waiting ---

    def wait(self, task_id: str, timeout: Seconds | None = None) -> Ended:
        """How the task ended, waiting for that, for ever if no `timeout` is given. Raises NotInTime, or NotFound."""
        clock = self.transport.clock
        seconds = plain({"timeout": timeout}).get("timeout")
        end = None if seconds is None else clock() + seconds
        while True:
            left = LONGEST_WAIT if end is None else max(0.0, min(LONGEST_WAIT, end - clock()))
            begun = clock()
            answer = self.transport.ask(
                "GET", f"{_path(task_id)}/result", query={"wait": left}, longer=left, lasting=True
            )
            if answer.status == 200:
                return read(Ended, answer.document)
            if end is not None and clock() >= end:
                raise NotInTime(f"task {task_id} has not ended within {seconds:g} s: it is {answer.document['status']}")
            # When too many wait already, the gateway answers at once.
            if clock() - begun < left / 2:
                self.transport.sleep(min(1.0, left))

    def watch(self, task_id: str) -> Iterator[Task]:
        """The task as it is now, and again at each change of its state or progress, until it has ended.

        A connection that is cut is made again. Raises NotFound.
        """
        return watch(self.transport, f"{_path(task_id)}/events", Task)

    def result(self, task_id: str, timeout: Seconds | None = None) -> Any:
        """What the task's handler returned, waiting for it. Raises TaskFailed when it ended otherwise, or NotInTime."""
        ended = self.wait(task_id, timeout)
        if ended.status is not TaskState.COMPLETED:
            raise TaskFailed(ended)
        return ended.result

    def cancel(self, task_id: str, reason: str | None = None) -> Status:
        """Cancels a task: a waiting one at once, a running one by stopping it. Raises Conflict when it has ended."""
        answer = self.transport.ask("DELETE", _path(task_id), query={"reason": reason}, repeatable=False)
        return read(Status, answer.document)


def _path(task_id: str) -> str:
    return f"/tasks/{quote(task_id, safe='')}"
