"""Submits tasks to Redis directly, without a gateway."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from pydantic import ValidationError

from firmq.shared.config import foreign_names
from firmq.shared.config.settings import OF_FEATURES, Settings, load
from firmq.shared.domain.task import TaskState
from firmq.shared.errors import NotPlaced, SettingsError
from firmq.shared.redis.connections import note_what_is_sent
from firmq.shared.submission.answers import Accepted, Ended, Status, TaskDetail
from firmq.shared.submission.direct import Draft
from firmq.shared.submission.many import (
    ChunkOutcome,
    Group,
    NewSubmission,
    chunks_of,
    groups_of,
    in_order,
    submit_chunk,
)
from firmq.shared.submission.metrics import record
from firmq.shared.submission.options import Options, Seconds, plain
from firmq.shared.submission.problems import NotInTime, Problem, TaskFailed
from firmq.shared.submission.retries import Retries
from firmq.shared.submission.submissions import Submissions, submissions_to

T = TypeVar("T")
BRIEF, LASTING = 2.0, 30.0
"""Default seconds for which a call is retried while Redis is unavailable: a submission, and a wait."""
STEP = 30.0
"""Seconds of one wait for the end of a task."""


class Queue:
    """Submits tasks to the Redis server at `url` (else the one of the settings), as a gateway would. Thread-safe.

    Settings are the gateway's, from the environment and CONFIG_FILE; keyword arguments override them by name, as
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
        self._submissions = submissions_to(self.settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes all idle connections."""
        self._submissions.close()

    def submit(
        self, task_type: str, data: Any = None, *, idempotency_key: str | None = None, **options: Unpack[Options]
    ) -> Accepted:
        """Submits a task. Returns when Redis has stored it. Raises Problem.

        A retry after a lost answer stores nothing twice, also without `idempotency_key`. With a key, the same
        submission made again, directly or over HTTP, returns the first task. Raises TypeError or ValueError for data
        that JSON lacks.
        """
        begun = time.perf_counter()
        note_what_is_sent()
        try:
            accepted = self._store(NewSubmission(self.submissions, task_type, data, idempotency_key, options))
        except Exception as error:
            record(begun, (error,))
            raise
        record(begun, (accepted,))
        return accepted

    def _store(self, new: NewSubmission) -> Accepted:
        self._retried(new.draft, BRIEF)
        return self._retried(partial(self._submit, new), BRIEF)

    def _submit(self, new: NewSubmission) -> Accepted:
        while True:
            try:
                return new.submission.submit(new.drafted)
            except NotPlaced as refusal:
                new.elsewhere(refusal)
            except Exception as error:
                new.after(error)
                raise

    def submit_many(self, tasks: Iterable[Mapping[str, Any]]) -> list[Accepted | Problem]:
        """Submits tasks, as `new_task` returns them, some hundred in each round trip.

        Returns for each, in order, the accepted task or the Problem with which it was refused. When Redis becomes
        unavailable, the tasks from there on have that Problem, and the first 250 of them may have been stored. Raises
        TypeError or ValueError for an invalid task or a value that JSON lacks; then nothing was stored.
        """
        begun = time.perf_counter()
        groups = groups_of(self.submissions, tasks)
        note_what_is_sent()
        outcomes = in_order(groups, [self._outcomes(group) for group in groups])
        record(begun, outcomes)
        return outcomes

    def _outcomes(self, group: Group) -> list[Accepted | Problem]:
        outcomes: list[ChunkOutcome] = []
        try:
            for chunk in chunks_of(group.drafts):
                outcomes += self._retried(partial(submit_chunk, group.submission, chunk), BRIEF)
        except Problem as problem:
            outcomes += [problem] * (len(group.drafts) - len(outcomes))
        return [self._elsewhere(each, draft) for each, draft in zip(outcomes, group.drafts, strict=True)]

    def _elsewhere(self, outcome: ChunkOutcome, draft: Draft | Problem) -> Accepted | Problem:
        """Returns the outcome of a task; one that its store refused is submitted to another."""
        if not isinstance(outcome, NotPlaced):
            return outcome
        assert isinstance(draft, Draft)  # noqa: S101  # for mypy: it was sent
        try:
            return self._store(NewSubmission.again(self.submissions, draft))
        except Problem as problem:
            return problem

    def get(self, task_id: str) -> TaskDetail:
        """Returns a task with its whole record. Raises NotFound."""
        return self._retried(lambda: self.submissions.of(task_id).get(task_id), BRIEF)

    def wait(self, task_id: str, timeout: Seconds | None = None) -> Ended:
        """Waits for the end of a task; without `timeout` (seconds), indefinitely. Raises NotInTime or NotFound."""
        limit = plain({"timeout": timeout}).get("timeout")
        end = None if limit is None else self.clock() + limit
        while True:
            left = STEP if end is None else max(0.0, min(STEP, end - self.clock()))
            found = self._retried(partial(self._ended, task_id, left), LASTING)
            if isinstance(found, Ended):
                return found
            if end is not None and self.clock() >= end:
                raise not_in_time(task_id, limit, found)

    def _ended(self, task_id: str, seconds: float) -> Ended | TaskState:
        return self.submissions.of(task_id).ended(task_id, seconds)

    def result(self, task_id: str, timeout: Seconds | None = None) -> Any:
        """Waits for a task and returns its result. Raises TaskFailed if it did not complete, or NotInTime."""
        return result_of(self.wait(task_id, timeout))

    def cancel(self, task_id: str, reason: str | None = None) -> Status:
        """Cancels a task: a waiting one immediately, a running one by stopping it. Raises Conflict if it has ended."""
        return self._retried(lambda: self.submissions.of(task_id).cancel(task_id, reason), BRIEF)

    @property
    def submissions(self) -> Submissions:
        """Returns the stores and caches of this process, for each store."""
        if self._submissions.is_of_parent():
            self._submissions = submissions_to(self.settings)
        return self._submissions

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
    others = dict.fromkeys((name for each in OF_FEATURES for name in each.ADDRESSES), ())
    given = {**({**others, "redis_url": url} if url else {}), **overrides}
    try:
        settings = load()
        foreign_names.warn(settings)
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
