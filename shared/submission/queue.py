"""Submits tasks to Redis directly, without a gateway."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from pydantic import ValidationError

from taskqueue.shared.config.settings import Settings, load
from taskqueue.shared.domain.task import TaskState
from taskqueue.shared.errors import SettingsError
from taskqueue.shared.redis.connections import note_what_is_sent
from taskqueue.shared.submission.answers import Accepted, Ended, Status, TaskDetail
from taskqueue.shared.submission.direct import Submission
from taskqueue.shared.submission.many import chunks_of, drafts_of, submit_chunk
from taskqueue.shared.submission.metrics import record
from taskqueue.shared.submission.options import Options, Seconds, plain
from taskqueue.shared.submission.problems import NotInTime, Problem, TaskFailed
from taskqueue.shared.submission.retries import Retries

T = TypeVar("T")
BRIEF, LASTING = 2.0, 30.0
"""Default seconds for which a call is retried while Redis is unavailable: a submission, and a wait."""
STEP = 30.0
"""Seconds of one wait for the end of a task."""


class Queue:
    """Submits tasks to the Redis server at `url` (else REDIS_URL), as a gateway on it would. Thread-safe.

    Settings are those of the gateway, from the environment and CONFIG_FILE; keyword arguments override them by name, as
    in `Queue(url, default_priority="high")`. A submission is retried for `patience` seconds while Redis is unavailable
    or the queue is full. After a fork the child makes connections of its own. Raises ValueError for an invalid URL or
    setting.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        patience: float | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        **settings: Any,
    ) -> None:
        self.settings = settings_for(url, settings)
        self.patience = patience
        self.sleep = sleep
        self.clock = clock
        self._submission = Submission(self.settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes all idle connections."""
        self._submission.close()

    def submit(
        self, task_type: str, data: Any = None, *, idempotency_key: str | None = None, **options: Unpack[Options]
    ) -> Accepted:
        """Submits a task. Returns when Redis has stored it. Raises Problem.

        A retry after a lost answer stores nothing twice, also without `idempotency_key`. With a key, the same
        submission made again, directly or over HTTP, returns the first task. Raises TypeError or ValueError for data
        that JSON lacks.
        """
        submission, begun = self.submission, time.perf_counter()
        note_what_is_sent()
        try:
            draft = self._retried(partial(submission.draft, task_type, data, idempotency_key, options), BRIEF)
            accepted = self._retried(partial(submission.submit, draft), BRIEF)
        except Exception as error:
            record(begun, (error,))
            raise
        record(begun, (accepted,))
        return accepted

    def submit_many(self, tasks: Iterable[Mapping[str, Any]]) -> list[Accepted | Problem]:
        """Submits tasks, as `new_task` returns them, some hundred in each round trip.

        Returns for each, in order, the accepted task or the Problem with which it was refused. When Redis becomes
        unavailable, the tasks from there on have that Problem, and the first 250 of them may have been stored. Raises
        TypeError or ValueError for what is not a task or what JSON lacks; then nothing was stored.
        """
        submission, begun = self.submission, time.perf_counter()
        drafts, outcomes = drafts_of(submission, tasks), list[Accepted | Problem]()
        note_what_is_sent()
        try:
            for chunk in chunks_of(drafts):
                outcomes += self._retried(partial(submit_chunk, submission, chunk), BRIEF)
        except Problem as problem:
            outcomes += [problem] * (len(drafts) - len(outcomes))
        record(begun, outcomes)
        return outcomes

    def get(self, task_id: str) -> TaskDetail:
        """Returns a task with its whole record. Raises NotFound."""
        return self._retried(partial(self.submission.get, task_id), BRIEF)

    def wait(self, task_id: str, timeout: Seconds | None = None) -> Ended:
        """Waits for the end of a task; without `timeout` (seconds), indefinitely. Raises NotInTime or NotFound."""
        limit = plain({"timeout": timeout}).get("timeout")
        end = None if limit is None else self.clock() + limit
        while True:
            left = STEP if end is None else max(0.0, min(STEP, end - self.clock()))
            found = self._retried(partial(self.submission.ended, task_id, left), LASTING)
            if isinstance(found, Ended):
                return found
            if end is not None and self.clock() >= end:
                raise not_in_time(task_id, limit, found)

    def result(self, task_id: str, timeout: Seconds | None = None) -> Any:
        """Waits for a task and returns its result. Raises TaskFailed if it did not complete, or NotInTime."""
        return result_of(self.wait(task_id, timeout))

    def cancel(self, task_id: str, reason: str | None = None) -> Status:
        """Cancels a task: a waiting one immediately, a running one by stopping it. Raises Conflict if it has ended."""
        return self._retried(partial(self.submission.cancel, task_id, reason), BRIEF)

    @property
    def submission(self) -> Submission:
        """Returns the stores and caches of this process."""
        if self._submission.is_of_parent():
            self._submission = Submission(self.settings)
        return self._submission

    def _retried(self, call: Callable[[], T], seconds: float) -> T:
        retries: Retries | None = None
        while True:
            try:
                return call()
            except Exception as error:
                retries = retries or Retries(seconds if self.patience is None else self.patience, self.clock)
                pause = retries.pause_after(error)
            self.sleep(pause)


def settings_for(url: str | None, overrides: dict[str, Any]) -> Settings:
    """Returns the settings of this process with these in their place. Raises ValueError for an invalid one."""
    given = {**({"redis_url": url} if url else {}), **overrides}
    try:
        settings = load()
        return Settings.model_validate({**settings.model_dump(), **given}) if given else settings
    except ValidationError as error:
        mistakes = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise ValueError(f"invalid settings of a queue: {'; '.join(mistakes)}") from None
    except SettingsError as error:
        raise ValueError(f"invalid settings in the environment: {error}") from None


def not_in_time(task_id: str, limit: float | None, state: object) -> NotInTime:
    """Returns the exception for a wait that was too short."""
    return NotInTime(f"task {task_id} has not ended within {limit or 0:g} s: it is {state}")


def result_of(ended: Ended) -> Any:
    """Returns the result of an ended task. Raises TaskFailed if it did not complete."""
    if ended.status is not TaskState.COMPLETED:
        raise TaskFailed(ended)
    return ended.result
