# Generated from shared/client/aio/feed.py by `python -m tools.unasync`: change that file.
"""Sends a batch in pages, in constant memory: while some are in flight, the next tasks are produced.

The caller produces the tasks, because a database cursor may not be used in another thread; two senders send pages. A
page is resent after a lost response: it states the index of its first task, so nothing is stored twice.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from firmq.shared.client.answers import BatchItem, read
from firmq.shared.client.concurrency import Tasks, each_of
from firmq.shared.client.response import retry_after
from firmq.shared.client.senders import Condition, Future, Senders, result_of, wait_for_change
from firmq.shared.client.sending import Sending
from firmq.shared.client.transport import Transport
from firmq.shared.submission.problems import ClientError, Problem, problem

PAGE = 1000
"""Maximum tasks of a page."""
PAGE_BYTES = 256 << 10
"""Bytes above which a page of several tasks is not filled further; a gateway accepts 1 MiB by default."""
GATHER = 0.005
"""Seconds after which a page is sent even if it is not full."""
SENDERS = 2
"""Pages sent at the same time: the gateway validates one while Redis stores another."""
_AFTER_OTHERS = ("depends_on", "unique_key")
"""Options for which earlier tasks of the batch must have been stored."""
_TOO_LARGE, _INVALID_JSON = 413, "/problems/invalid-json"
"""Refusals of a whole page that may be due to one of its tasks."""

Outcome = dict[str, Any]


class BatchFeed(Sending):
    """A batch that is sent at once or while iterated over; yields the outcome of each task, in order.

    `batch_id` is set from the first response on; `accepted` and `refused` count outcomes. When the iterable of tasks
    raises, the tasks before are kept and the batch is closed; then the error is raised with a note.
    """

    def __init__(self, transport: Transport, tasks: Tasks, terms: Mapping[str, Any], key: str) -> None:
        self.transport = transport
        self.key = key
        self.accepted = 0
        self.refused = 0
        self.complete = False
        self._terms = terms
        self._tasks = tasks
        self._broken: Exception | None = None

    def results(self) -> Iterator[BatchItem]:
        # Created here because it refers to this object: an unsent feed must be freed, and warn, immediately.
        tasks = self._produced(self._tasks)
        task = next(tasks, None)
        if self._broken:
            raise self._broken
        try:
            path = self._open()
            with _Pages(self.transport, path) as pages:
                while task:
                    pages.add(task)
                    for outcome in pages.ready():
                        yield self._counted(outcome)
                    task = next(tasks, None)
                for outcome in pages.rest():
                    yield self._counted(outcome)
            self.transport.ask("POST", f"{path}/close", lasting=True)
        except ClientError as error:
            error.add_note(
                f"{self.accepted} tasks of this batch were accepted before; resend the whole batch with "
                f"idempotency_key={self.key!r} to store none twice"
            )
            raise
        self.complete = True
        if self._broken:
            raise self._with_batch(self._broken)

    def _produced(self, tasks: Tasks) -> Iterator[_Task]:
        """Yields encoded tasks until the end of the iterable, or the first error, which is kept."""
        try:
            for task in each_of(tasks):
                body = json.dumps(task, allow_nan=False, separators=(",", ":")).encode()
                yield _Task(body, any(name in task for name in _AFTER_OTHERS))
        except Exception as error:
            self._broken = error

    def _open(self) -> str:
        """Creates the batch, or opens the existing one again. Returns its path."""
        headers = {"Idempotency-Key": self.key}
        answer = self.transport.ask("POST", "/batches", body=self._terms, headers=headers, lasting=True)
        self.batch_id = str(answer.document["batch_id"])
        return f"/batches/{quote(self.batch_id, safe='')}"

    def _counted(self, outcome: Outcome) -> BatchItem:
        item = read(BatchItem, outcome)
        self.accepted += item.accepted
        self.refused += not item.accepted
        return item

    def _with_batch(self, error: Exception) -> Exception:
        error.add_note(
            f"batch {self.batch_id} was closed with the {self.accepted} tasks accepted before this error; resend the "
            f"whole batch with idempotency_key={self.key!r} to continue after them"
        )
        return error


@dataclass(frozen=True, slots=True)
class _Task:
    """A task as JSON, and whether earlier tasks must have been stored."""

    body: bytes
    after_others: bool


@dataclass(slots=True)
class _Page:
    """Consecutive tasks, the first with index `start`."""

    start: int
    tasks: list[_Task] = field(default_factory=list)
    size: int = 0
    due: float = 0.0
    answer: Future[list[Outcome]] = field(default_factory=Future)

    def full_for(self, task: _Task) -> bool:
        return len(self.tasks) >= PAGE or (bool(self.tasks) and self.size + len(task.body) > PAGE_BYTES)

    def body(self) -> bytes:
        return b'{"start":%d,"tasks":[%b]}' % (self.start, b",".join([task.body for task in self.tasks]))


class _Pages:
    """Collects tasks in a page; senders send pages.

    A sender without work takes the page when it is full, `GATHER` seconds old, or the last. So a fast producer gets
    large pages, and a task of a slow one does not wait for the next.
    """

    def __init__(self, transport: Transport, path: str) -> None:
        self.transport = transport
        self.path = f"{path}/tasks"
        self._page = _Page(0)
        self._sent: deque[_Page] = deque()
        self._full = self._ended = False
        self._changed = Condition()
        self._senders = Senders(self._run, SENDERS)

    def __enter__(self) -> _Pages:
        self._senders.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._ended = True
            self._page = _Page(0)
            self._changed.notify_all()
        self._senders.leave()

    def add(self, task: _Task) -> None:
        """Adds a task; waits while the page is full."""
        with self._changed:
            while self._page.full_for(task):
                self._full = True
                self._changed.notify_all()
                wait_for_change(self._changed)
            page = self._page
            if not page.tasks:
                page.due = time.monotonic() + GATHER
                self._changed.notify_all()
            page.tasks.append(task)
            page.size += len(task.body)

    def ready(self) -> Iterator[Outcome]:
        """Yields the outcomes that are known now, in order. Raises ClientError for a page that cannot be sent."""
        while self._sent and self._sent[0].answer.done():
            yield from self._first()

    def rest(self) -> Iterator[Outcome]:
        """Sends the last page and yields all remaining outcomes."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
            while self._page.tasks:
                wait_for_change(self._changed)
        while self._sent:
            yield from self._first()

    def _first(self) -> list[Outcome]:
        outcomes = result_of(self._sent[0].answer)
        with self._changed:
            self._sent.popleft()
        return outcomes

    # --- in the senders ---

    def _run(self) -> None:
        while page := self._next():
            try:
                page.answer.set_result(self._deliver(page.start, page.tasks))
            except Exception as error:
                page.answer.set_exception(error)
                page.answer.exception()  # of several errors only the first is raised, which is no reason to warn
            with self._changed:
                self._changed.notify_all()

    def _next(self) -> _Page | None:
        with self._changed:
            while not self._may_take():
                if self._ended and not self._page.tasks:
                    return None
                left = self._page.due - time.monotonic() if self._page.tasks else None
                wait_for_change(self._changed, left if left is None or left > 0 else None)
            page, self._full = self._page, False
            self._page = _Page(page.start + len(page.tasks))
            self._sent.append(page)
            self._changed.notify_all()
            return page

    def _may_take(self) -> bool:
        page = self._page
        if not page.tasks or not (self._full or self._ended or time.monotonic() >= page.due):
            return False
        waits = any(task.after_others for task in page.tasks)
        return not waits or all(each.answer.done() for each in self._sent)

    def _deliver(self, start: int, tasks: list[_Task]) -> list[Outcome]:
        """Sends tasks, again until Redis has answered for each. Returns their outcomes."""
        patience = self.transport.patience(lasting=True)
        while True:
            try:
                answer = self.transport.ask("POST", self.path, body=_Page(start, tasks).body(), lasting=True)
            except Problem as refusal:
                if refusal.status != _TOO_LARGE and refusal.type != _INVALID_JSON:
                    raise
                return self._halved(start, tasks, refusal)
            items: list[Outcome] = answer.items
            unknown = next((each["problem"] for each in items if _unknown(each)), None)
            if unknown is None:
                return items
            if not patience.pause(retry_after(unknown.get("retry_after"))):
                raise problem(unknown["status"], unknown)

    def _halved(self, start: int, tasks: list[_Task], refusal: Problem) -> list[Outcome]:
        """Sends the halves of a page that was refused as a whole; a single task is refused individually."""
        if len(tasks) == 1:
            return [{"index": start, "problem": refusal.document}]
        half = len(tasks) // 2
        return self._deliver(start, tasks[:half]) + self._deliver(start + half, tasks[half:])


def _unknown(item: Outcome) -> bool:
    """Returns whether Redis did not answer for a task."""
    return "problem" in item and item["problem"]["status"] == 503
