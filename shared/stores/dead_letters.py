"""The dead-letter queue: tasks that failed permanently, until they are retried or deleted."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from firmq.shared.domain import strict_json, task_data
from firmq.shared.domain.clock import to_us
from firmq.shared.domain.decode import whole_or_none
from firmq.shared.domain.task import TaskState
from firmq.shared.domain.traceparent import Subject, read_traceparent
from firmq.shared.errors import BatchStopped, IllegalTransition, TaskNotFound
from firmq.shared.redis.client import text, translated
from firmq.shared.stores.tasks import Filter, Page, Records

if TYPE_CHECKING:
    from firmq.shared.redis.scripts import Scripts
    from firmq.shared.stores.spans import Spans

CHUNK = 200
"""Dead letters moved or removed in one step."""


class SentBack(NamedTuple):
    """Outcome of a requeue of a dead letter: the state it was found in, and whether it was requeued.

    `stopped` is its batch, if it was not because that batch is stopped.
    """

    state: str
    done: bool
    stopped: str = ""


class DeadLetters:
    """The tasks in state failed."""

    def __init__(
        self, scripts: Scripts, records: Records, tracing: Spans | None = None, kept: timedelta = timedelta(days=1)
    ) -> None:
        """`kept` is how long a deleted task can be restored."""
        self.scripts = scripts
        self.kept = kept
        self.records = records
        self.tracing = tracing

    def page(self, wanted: Filter | None = None, *, limit: int, cursor: str | None = None) -> Page:
        """Returns one page, the latest failure first. Raises ValueError for an invalid cursor."""
        return self.records.page(replace(wanted or Filter(), state=TaskState.FAILED), limit=limit, cursor=cursor)

    def requeue(self, task_id: str, score: float | None = None) -> None:
        """Requeues one with all its retries, and with a new score if given; its attempts stay on record.

        Raises TaskNotFound, IllegalTransition when it is not, or no longer, a dead letter, and BatchStopped.
        """
        [found] = self.requeue_many([task_id], score)
        _demand_running_batch(found)
        _check(task_id, found.state, found.done, "retried")

    def amend(self, task_id: str, task_type: str, data: Any) -> None:
        """Requeues one with other data. Raises the errors of `requeue`, and PayloadUnavailable."""
        stored = task_data.encode(task_type, self.records.payloads.data_of(task_id, strict_json.dump(data)))
        with translated(), self.replaying([task_id]) as cause:
            found = amend(self.scripts, task_id, stored, cause)
        _demand_running_batch(found)
        _check(task_id, found.state, found.done, "retried with other data")

    def purge(self, task_id: str) -> None:
        """Deletes one; it can be restored for a time. Raises TaskNotFound, and IllegalTransition as `requeue` does."""
        state, done = self.purge_many([task_id])[0]
        _check(task_id, state, done, "removed")

    def requeue_many(self, ids: Sequence[str], score: float | None = None) -> list[SentBack]:
        """Requeues many; returns the outcome of each."""
        answer: list[SentBack] = []
        with translated():
            for at in range(0, len(ids), CHUNK):
                chunk = ids[at : at + CHUNK]
                with self.replaying(chunk) as cause:
                    answer += requeue(self.scripts, chunk, cause, score)
        return answer

    @property
    def traced(self) -> bool:
        """Returns whether retries are traced."""
        return self.tracing is not None and self.tracing.on

    def replaying(self, ids: Sequence[str]) -> AbstractContextManager[str]:
        """Wraps requeueing in a span; yields the `traceparent` to pass on, "" when it is not traced."""
        if self.tracing is None or not self.tracing.on:
            return nullcontext("")
        return self.tracing.replaying(lambda: self._subjects(ids))

    def _subjects(self, ids: Sequence[str]) -> list[tuple[Subject, str | None]]:
        with self.scripts.redis.pipeline(transaction=False) as pipeline:
            for each in ids:
                pipeline.hmget(self.scripts.keys.rq_job(each), "description", "origin", "attempt", "meta")
            rows = pipeline.execute(raise_on_error=False)
        return [_subject(each, row) for each, row in zip(ids, rows, strict=True) if isinstance(row, list)]

    def purge_many(self, ids: Sequence[str]) -> list[tuple[str, bool]]:
        """Deletes many; returns the state found and whether it was deleted, for each."""
        failed = TaskState.FAILED
        with translated():
            return [
                row
                for at in range(0, len(ids), CHUNK)
                for row in purge(self.scripts, failed, ids[at : at + CHUNK], self.kept)
            ]


def _demand_running_batch(found: SentBack) -> None:
    """Raises BatchStopped for a dead letter whose batch is stopped."""
    if found.stopped:
        raise BatchStopped(
            f"batch {found.stopped} of this task was stopped, so it would not start: retry the batch "
            f"(POST /batches/{found.stopped}/retry), which resumes it and requeues all its dead letters",
            state=found.state,
        )


def _subject(task_id: str, row: Sequence[bytes | None]) -> tuple[Subject, str | None]:
    kind, queue, attempt, meta = (text(each or b"") for each in row)
    return Subject(id=task_id, type=kind, queue=queue, attempt=whole_or_none(attempt) or 0), read_traceparent(meta)


def _check(task_id: str, state: str, done: bool, verb: str) -> None:
    if done:
        return
    if not state:
        raise TaskNotFound(id=task_id)
    raise IllegalTransition(f"the task is {state}: only a failed task can be {verb}", state=state)


def _nonce() -> str:
    """Returns a value by which a script recognizes a repeated command."""
    return secrets.token_hex(8)


def _sent_back(state: bytes, done: int, stopped: bytes = b"") -> SentBack:
    return SentBack(text(state), bool(done), text(stopped))


def requeue(scripts: Scripts, ids: Sequence[str], cause: str = "", score: float | None = None) -> list[SentBack]:
    """Requeues dead letters; `cause` is the requesting span, as a `traceparent`."""
    new_score = "" if score is None else repr(score)
    return [_sent_back(*each) for each in scripts.call_answered("requeue", cause, _nonce(), new_score, *ids)]


def purge(scripts: Scripts, state: str, ids: Sequence[str], kept: timedelta = timedelta()) -> list[tuple[str, bool]]:
    """Removes tasks that ended in `state`; returns the state found and whether it was removed, for each."""
    rows = scripts.call("purge", state, to_us(kept) // 1000, *ids)
    return [(text(found), bool(done)) for found, done in rows]


def amend(scripts: Scripts, task_id: str, data: str, cause: str = "") -> SentBack:
    """Requeues a dead letter with new data; `cause` as in `requeue`."""
    return _sent_back(*scripts.call_answered("amend", task_id, data, cause, _nonce()))
