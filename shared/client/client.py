# Generated from shared/client/aio/client.py by `python -m tools.unasync`: change that file.
"""The client of a gateway: typed, with time limits, and with retries that never store a task twice."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack
from urllib.parse import quote

from firmq.shared.client.answers import AuditEntry, Breakdown, Timeline, read
from firmq.shared.client.concurrency import Sleep, Tasks, sleep
from firmq.shared.client.resources import (
    Batches,
    BulkActions,
    DeadLetters,
    Limits,
    Locks,
    Pages,
    Queues,
    Schedules,
    Types,
    Workers,
)
from firmq.shared.client.response import random_key
from firmq.shared.client.transport import Transport
from firmq.shared.client.watching import output, watch
from firmq.shared.domain.task_state import TaskState
from firmq.shared.submission.answers import Accepted, Ended, OutputChunk, Status, Task, TaskDetail
from firmq.shared.submission.options import Options, Seconds, plain
from firmq.shared.submission.problems import NotInTime, TaskFailed

if TYPE_CHECKING:
    import ssl

    from firmq.shared.client.feed import BatchFeed

DEFAULT_URL = "http://localhost:8000"
LONGEST_WAIT = 30.0
"""Maximum seconds for which a gateway lets a request wait for a result."""
PAUSE, LONGEST_PAUSE = 1.0, 5.0
"""Seconds between requests for a result that may not wait at the gateway, at first and at most."""
_KEY = re.compile(r"[!-~]*")
"""Characters of a key that a header can hold: printable ASCII without spaces."""


class Client:
    """A client of the gateway at `url` (else FIRMQ_URL, else http://localhost:8000). Belongs to one event loop.

    `api_key` (else FIRMQ_API_KEY) is sent with every request; needed if the gateway requires a key.

    Requests that are safe to repeat are retried for `patience` seconds while the gateway is unavailable. The default is
    2 for `submit` and other single requests, and 30 for `batch`, `wait`, `result` and `watch`. Connecting may take 2
    seconds, and then the response `timeout` seconds. Raises ValueError for an invalid URL or API key.
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
        sleep: Sleep = sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        address = url or os.environ.get("FIRMQ_URL") or DEFAULT_URL
        key = (api_key or os.environ.get("FIRMQ_API_KEY") or "").strip()
        if not _KEY.fullmatch(key):
            # Checked here because the error of http.client quotes the whole key.
            raise ValueError("the API key has a space, a line break or a non-ASCII character: copy the key alone")
        sent = {**({"Authorization": f"Bearer {key}"} if key else {}), **(headers or {})}
        self.transport = Transport(
            address, timeout=timeout, patience=patience, headers=sent, tls=tls, sleep=sleep, clock=clock
        )
        self.batches = Batches(self.transport)
        self.dead_letters = DeadLetters(self.transport)
        self.bulk_actions = BulkActions(self.transport)
        self.queues = Queues(self.transport)
        self.types = Types(self.transport)
        self.schedules = Schedules(self.transport)
        self.workers = Workers(self.transport)
        self.limits = Limits(self.transport)
        self.locks = Locks(self.transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes all idle connections."""
        self.transport.close()

    # --- sending ---

    def submit(
        self, task_type: str, data: Any = None, *, idempotency_key: str | None = None, **options: Unpack[Options]
    ) -> Accepted:
        """Submits a task. Returns when the task is stored. Raises Problem or Unreachable.

        Without `idempotency_key` a random one is used, so that a retry after a lost response stores nothing twice.
        """
        body = {"type": task_type, "data": data, **plain(options)}
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else None
        answer = self.transport.ask("POST", "/tasks", body=body, headers=headers, key=None if headers else random_key)
        return read(Accepted, {**answer.document, "existing": answer.status == 200})

    def batch(
        self,
        tasks: Tasks,
        *,
        name: str | None = None,
        max_running: int | None = None,
        stop_on_error: int | None = None,
        then: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> BatchFeed:
        """Submits many tasks. Returns a feed with the outcome of each, in order.

        A sequence is sent before this returns. Any other iterable is consumed while the feed is iterated over, or when
        `drain` is called: memory use stays constant, and nothing is sent before. Create tasks with `new_task`; a task
        may depend on an earlier one by name, or by index if that has no name.
        """
        terms = plain({"name": name, "max_running": max_running, "stop_on_error": stop_on_error, "then": then})
        from firmq.shared.client.feed import BatchFeed  # it is slow to import, and most programs need none

        return BatchFeed(self.transport, tasks, terms, idempotency_key or random_key()).send(tasks)

    # --- looking ---

    def get(self, task_id: str) -> TaskDetail:
        """Returns a task with its whole record. Raises NotFound."""
        answer = self.transport.ask("GET", _path(task_id))
        return read(TaskDetail, answer.document)

    def tasks(
        self,
        *,
        status: TaskState | str | None = None,
        task_type: str | None = None,
        queue: str | None = None,
        priority: str | None = None,
        tag: str | None = None,
        submitted_by: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        min_score: float | None = None,
        max_score: float | None = None,
        deleted: bool = False,
        search: str | None = None,
    ) -> Iterator[Task]:
        """Returns all matching tasks, newest first, read page by page; with `deleted`, those that can be restored.

        `search` has words as in the search of the dashboard, such as `error:timeout data.customer:42 age>1h`.
        """
        query = {
            "status": status,
            "type": task_type,
            "queue": queue,
            "priority": priority,
            "tag": tag,
            "submitted_by": submitted_by,
            "since": since,
            "until": until,
            "min_score": min_score,
            "max_score": max_score,
            "deleted": "true" if deleted else None,
            "search": search,
        }
        return Pages(self.transport, "/tasks", Task, query)

    def breakdown(
        self, field: str | None = None, *, batch_id: str | None = None, cause: str | None = None, **filters: Any
    ) -> Breakdown:
        """Counts tasks by the fields of their data and by tag: of a batch, a cause, or the `filters` of `tasks`.

        `field` is the path of one field, such as `customer.id`; by default those that the first tasks have. At most
        the latest 10,000 tasks are counted. Raises NotFound when there is no such batch.
        """
        filters["type"] = filters.pop("task_type", None)
        query = plain({"field": field, "batch_id": batch_id, "cause": cause, **filters})
        answer = self.transport.ask("GET", "/breakdown", query=query)
        return read(Breakdown, answer.document)

    def timeline(self, *, since: datetime | None = None, until: datetime | None = None) -> Timeline:
        """Returns deploys, alerts, pauses, lost workers and people's actions in a range; by default the last six hours.

        Raises Refused for a range that is too long or ends before it begins.
        """
        query = plain({"since": since, "until": until})
        answer = self.transport.ask("GET", "/timeline", query=query)
        return read(Timeline, answer.document)

    def audit(
        self,
        *,
        who: str | None = None,
        what: str | None = None,
        about: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Iterator[AuditEntry]:
        """Returns the changes that people and clients made, newest first; the texts match parts of an entry's."""
        query = {"who": who, "what": what, "about": about, "since": since, "until": until}
        return Pages(self.transport, "/audit", AuditEntry, query)

    # --- waiting ---

    def wait(self, task_id: str, timeout: Seconds | None = None) -> Ended:
        """Waits for the end of a task; without `timeout` (seconds), indefinitely. Raises NotInTime or NotFound."""
        clock = self.transport.clock
        limit = plain({"timeout": timeout}).get("timeout")
        end = None if limit is None else clock() + limit
        pause = PAUSE
        while True:
            left = LONGEST_WAIT if end is None else max(0.0, min(LONGEST_WAIT, end - clock()))
            with self.transport.connections.long_poll(left, self.transport.timeout) as seconds:
                begun = clock()
                answer = self.transport.ask("GET", f"{_path(task_id)}/result", wait=seconds, lasting=True)
            if answer.status == 200:
                return read(Ended, answer.document)
            if end is not None and clock() >= end:
                raise NotInTime(f"task {task_id} has not ended within {limit:g} s: it is {answer.document['status']}")
            # The gateway responds at once when too many requests wait, as it does when `long_poll` gives no time.
            if clock() - begun < left / 2:
                self.transport.sleep(min(pause * (0.75 + random.random() / 2), left))
                pause = min(pause * 1.5, LONGEST_PAUSE)
            else:
                pause = PAUSE

    def watch(self, task_id: str) -> Generator[Task]:
        """Yields the current task, and again after each change of state or progress, until it has ended.

        Reconnects when the connection is lost. Raises NotFound.
        """
        return watch(self.transport, f"{_path(task_id)}/events", Task)

    def stream(self, task_id: str) -> Generator[OutputChunk]:
        """Yields the output of the task, from its beginning, until it has ended.

        Reconnects when the connection is lost, and continues after the last chunk. Raises NotFound.
        """
        return output(self.transport, f"{_path(task_id)}/stream")

    def result(self, task_id: str, timeout: Seconds | None = None) -> Any:
        """Waits for a task and returns its result. Raises TaskFailed if it did not complete, or NotInTime."""
        ended = self.wait(task_id, timeout)
        if ended.status is not TaskState.COMPLETED:
            raise TaskFailed(ended)
        return ended.result

    def update(self, task_id: str, **changes: Any) -> Task:
        """Changes `queue`, `delay` or `run_at`, `data`, `score` of a task that waits. Raises Conflict otherwise."""
        answer = self.transport.ask("PATCH", _path(task_id), body={**plain(changes), **_given_data(changes)})
        return read(Task, answer.document)

    def signal(self, task_id: str, name: str, data: Any = None, *, replace: bool = False) -> Status:
        """Sends a task the signal that its handler waits for, now or later. Raises Refused, NotFound and Conflict.

        The same data may be sent again; other data is a conflict, as is a signal for a task that has ended. With
        `replace` other data takes the place of the first, until the handler has received that, and again while the task
        is a dead letter; a key with the scope admin may replace it at any time.
        """
        path = f"{_path(task_id)}/signals/{quote(name, safe='')}"
        answer = self.transport.ask("POST", path, body={"data": data, **({"replace": True} if replace else {})})
        return read(Status, answer.document)

    def redeliver(self, delivery_id: str) -> Status:
        """Repeats a webhook delivery, by its own id, as `deliveries` of a task has it. Raises NotFound and Conflict."""
        answer = self.transport.ask("POST", f"{_path(delivery_id)}/redeliver", repeatable=False)
        return read(Status, answer.document)

    def restore(self, task_id: str) -> Status:
        """Restores a task that was cancelled or deleted. Raises NotFound, or Conflict when it is neither."""
        answer = self.transport.ask("POST", f"{_path(task_id)}/restore", repeatable=False)
        return read(Status, answer.document)

    def cancel(self, task_id: str, reason: str | None = None) -> Status:
        """Cancels a task: a waiting one immediately, a running one by stopping it. Raises Conflict if it has ended."""
        answer = self.transport.ask("DELETE", _path(task_id), query={"reason": reason}, repeatable=False)
        return read(Status, answer.document)


def _given_data(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the data among changes unaltered: None is data too."""
    return {name: value for name, value in changes.items() if name == "data"}


def _path(task_id: str) -> str:
    return f"/tasks/{quote(task_id, safe='')}"
