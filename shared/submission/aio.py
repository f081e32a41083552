"""Submits tasks to Redis directly, for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from firmq.shared.errors import NotPlaced
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
from firmq.shared.submission.pipeline import Pipeline
from firmq.shared.submission.problems import Problem
from firmq.shared.submission.queue import (
    BRIEF,
    LASTING,
    not_in_time,
    result_of,
    settings_for,
)
from firmq.shared.submission.retries import Retries
from firmq.shared.submission.submissions import Submissions, submissions_to

T = TypeVar("T")
FIRST_LOOK, LONGEST_PAUSE = 0.002, 0.25
"""Seconds until a waiting coroutine looks for the end of its task again: a third of the time waited, within these."""


class AsyncQueue:
    """Submits tasks to Redis as `Queue` does, with the same arguments; for one event loop at a time.

    Submissions that are in flight at the same time share one connection and its round trips.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        patience: float | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        **settings: Any,
    ) -> None:
        self.settings = settings_for(url, settings)
        self.patience = patience
        self.sleep = sleep
        self.clock = clock
        self._open()

    def _open(self) -> None:
        self._submissions = submissions_to(self.settings)
        self._pipelines = {
            each: Pipeline(each.scripts.call_many_accepted) for each in self._submissions.by_number.values()
        }

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Waits for submissions in flight and closes all connections."""
        for each in self._pipelines.values():
            await asyncio.to_thread(each.close)
        await asyncio.to_thread(self._submissions.close)

    async def submit(
        self, task_type: str, data: Any = None, *, idempotency_key: str | None = None, **options: Unpack[Options]
    ) -> Accepted:
        """Submits a task, as `Queue.submit` does. A submission that is cancelled may have been stored."""
        begun = time.perf_counter()
        note_what_is_sent()
        try:
            accepted = await self._store(NewSubmission(self.submissions, task_type, data, idempotency_key, options))
        except Exception as error:
            record(begun, (error,))
            raise
        record(begun, (accepted,))
        return accepted

    async def _store(self, new: NewSubmission) -> Accepted:
        async def draft() -> None:
            new.draft()

        await self._retried(draft, BRIEF)
        return await self._retried(partial(self._submit, new), BRIEF)

    async def _submit(self, new: NewSubmission) -> Accepted:
        while True:
            try:
                return await self._submit_once(new)
            except NotPlaced as refusal:
                await asyncio.to_thread(new.elsewhere, refusal)

    async def _submit_once(self, new: NewSubmission) -> Accepted:
        submission, draft = new.submission, new.drafted
        try:
            if not submission.accepts(draft) and (first := await asyncio.to_thread(submission.check, draft)):
                return first
            if submission.payloads.is_large(draft.text):
                await asyncio.to_thread(submission.keep, draft)
            return await self._pipelines[submission].run(submission.steps(draft))
        except NotPlaced:
            raise
        except Exception as error:
            new.after(error)
            raise

    async def submit_many(self, tasks: Iterable[Mapping[str, Any]]) -> list[Accepted | Problem]:
        """Submits tasks, as `Queue.submit_many` does."""
        begun = time.perf_counter()
        groups = groups_of(self.submissions, tasks)
        outcomes = in_order(groups, [await self._outcomes(group) for group in groups])
        record(begun, outcomes)
        return outcomes

    async def _outcomes(self, group: Group) -> list[Accepted | Problem]:
        outcomes: list[ChunkOutcome] = []
        try:
            for chunk in chunks_of(group.drafts):
                outcomes += await self._in_thread(partial(submit_chunk, group.submission, chunk), BRIEF)
        except Problem as problem:
            outcomes += [problem] * (len(group.drafts) - len(outcomes))
        return [await self._elsewhere(each, draft) for each, draft in zip(outcomes, group.drafts, strict=True)]

    async def _elsewhere(self, outcome: ChunkOutcome, draft: Draft | Problem) -> Accepted | Problem:
        if not isinstance(outcome, NotPlaced):
            return outcome
        assert isinstance(draft, Draft)  # noqa: S101  # for mypy: it was sent
        try:
            return await self._store(NewSubmission.again(self.submissions, draft))
        except Problem as problem:
            return problem

    async def get(self, task_id: str) -> TaskDetail:
        """Returns a task with its whole record. Raises NotFound."""
        return await self._in_thread(lambda: self.submissions.of(task_id).get(task_id), BRIEF)

    async def wait(self, task_id: str, timeout: Seconds | None = None) -> Ended:
        """Waits for the end of a task; without `timeout` (seconds), indefinitely. Raises NotInTime or NotFound."""
        limit = plain({"timeout": timeout}).get("timeout")
        begun = self.clock()
        while True:
            found = await self._in_thread(lambda: self.submissions.of(task_id).ended(task_id, 0.0), LASTING)
            if isinstance(found, Ended):
                return found
            waited = self.clock() - begun
            if limit is not None and waited >= limit:
                raise not_in_time(task_id, limit, found)
            pause = min(max(waited / 3, FIRST_LOOK), LONGEST_PAUSE)
            await self.sleep(pause if limit is None else min(pause, limit - waited))

    async def result(self, task_id: str, timeout: Seconds | None = None) -> Any:
        """Waits for a task and returns its result. Raises TaskFailed if it did not complete, or NotInTime."""
        return result_of(await self.wait(task_id, timeout))

    async def cancel(self, task_id: str, reason: str | None = None) -> Status:
        """Cancels a task: a waiting one immediately, a running one by stopping it. Raises Conflict if it has ended."""
        return await self._in_thread(lambda: self.submissions.of(task_id).cancel(task_id, reason), BRIEF)

    @property
    def submissions(self) -> Submissions:
        """Returns the stores and caches of this process, for each store."""
        if self._submissions.is_of_parent():
            self._open()
        return self._submissions

    async def _in_thread(self, call: Callable[[], T], seconds: float) -> T:
        return await self._retried(partial(asyncio.to_thread, call), seconds)

    async def _retried(self, call: Callable[[], Awaitable[T]], seconds: float) -> T:
        retries: Retries | None = None
        while True:
            try:
                return await call()
            except Exception as error:
                retries = retries or Retries(seconds if self.patience is None else self.patience, self.clock)
                pause = retries.pause_after(error)
            await self.sleep(pause)
