"""What a feature is: something that a program does with RQ, and what the program is to see."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any
from uuid import uuid4

from redis import Redis
from rq import Queue
from rq.job import Job

from tests.support import rq_functions as shop

QUEUE, OTHER_QUEUE, QUIET_QUEUE = "imports", "mail", "quiet"
"""The last one for a feature that changes its whole queue."""
ENDED = ("finished", "failed", "canceled", "stopped")
FINISHED, FAILED = "finished", "failed"

Feature = Callable[["Program"], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A feature and its row in the documentation; `verdict` is supported, differs or refused."""

    page: str
    does: Feature
    sees: object
    verdict: str
    note: str
    since: str
    """The first version of RQ that has it, in program and worker; "" for all that are supported."""


FEATURES: dict[str, Row] = {}
"""Each feature by its name in the documentation, in the order of RQ's pages."""


def feature(
    name: str, sees: object, *, differs: str = "", refused: str = "", since: str = ""
) -> Callable[[Feature], Feature]:
    """Adds a feature to the page of its module; with a sentence when it differs or is refused."""

    def add(does: Feature) -> Feature:
        verdict = "differs" if differs else "refused" if refused else "supported"
        FEATURES[name] = Row(
            page=does.__module__, does=does, sees=sees, verdict=verdict, note=differs or refused, since=since
        )
        return does

    return add


class Program:
    """A program with its connection, its queues, and ways to wait."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.redis: Any = Redis.from_url(url, socket_timeout=None)  # one feature waits for longer than the default
        self.queue: Any = Queue(QUEUE, connection=self.redis)
        self._folder = TemporaryDirectory()
        self._executors = Lock()

    def end(self, job: Job, *ends: str) -> str:
        """Returns the status of a job once it has ended, or has one of these."""
        return self.seen(lambda: (status := self.status(job)) in (ends or ENDED) and status) or self.status(job)

    def status(self, job: Job) -> str:
        return str(job.get_status(refresh=True).value)

    def result(self, job: Job) -> list[object]:
        return [self.end(job), job.return_value()]

    def failure(self, job: Job, text: str) -> list[object]:
        """Returns the status of a job at its end, and whether its last result names this."""
        status = self.end(job)
        latest = self.seen(job.latest_result)
        return [status, text in str(latest and latest.exc_string)]

    def called(self, job: Job) -> list[str]:
        """Returns what the callbacks of a job wrote down."""
        return self.noted(f"rq:program:{job.id}")

    def noted(self, key: str) -> list[str]:
        return [each.decode() for each in self.redis.lrange(key, 0, -1)]

    def seen(self, condition: Callable[[], Any], seconds: float = 100) -> Any:
        """Returns what a condition gives as soon as that is true; its last value when it never is."""
        until = time.monotonic() + seconds
        while not (answer := condition()) and time.monotonic() < until:
            time.sleep(0.02)
        return answer

    @contextmanager
    def until_then(self) -> Iterator[str]:
        """Gives the file for a job of `shop.until_there`, which ends with the block."""
        file = Path(self._folder.name, uuid4().hex)
        try:
            yield str(file)
        finally:
            file.touch()

    @contextmanager
    def behind_others(self, job_id: str, name: str = QUEUE) -> Iterator[Any]:
        """Gives a job that is adopted, and waits behind jobs which keep all executors busy until the block ends.

        That is for seconds at most: other features may need the executors before the job can be adopted.
        """
        queue = Queue(name, connection=self.redis)
        with self._executors, self.until_then() as file:
            prepared = [Queue.prepare_data(shop.until_there, (file, 4)) for _ in range(4)]
            last = Queue.prepare_data(shop.note, (f"rq:program:{job_id}", "ran"), job_id=job_id)
            *_, waiting = queue.enqueue_many([*prepared, last])
            self.seen(lambda: self.redis.lpos(queue.key, job_id) is None)
            yield waiting
