"""Reads tasks: one with everything on record, or a page of many."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from redis.exceptions import ResponseError

from taskqueue.shared.domain.clock import instant_us
from taskqueue.shared.domain.task import TASK_ID, TaskDetail, TaskState, TaskSummary
from taskqueue.shared.errors import CorruptRecord, TaskNotFound
from taskqueue.shared.redis.client import raw, text, translated
from taskqueue.shared.redis.quarantine import raise_unless_corruption, without_corrupt
from taskqueue.shared.stores.record_fields import SUMMARY_FIELDS, broken, read_detail, read_summary

if TYPE_CHECKING:
    from redis import Redis

    from taskqueue.shared.redis.keys import Keys
    from taskqueue.shared.redis.scripts import Scripts

LOOK_AT = 1000
"""Tasks that one page may examine while it filters: about 3 ms of Redis, whatever the number stored."""
MOST_DELIVERIES = 20
"""Deliveries that are shown with the task that they report."""

NO_RECORD = "the key of this task does not hold a record"
_SCORE = re.compile(r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?(?:e[+-]?[0-9]{1,3})?")
_INFINITE = {"1e999": "inf", "-1e999": "-inf"}
"""The form in cursors of scores that only corrupt entries have."""
_NAMED = 40
_ESCAPED = re.compile(rf"~(?:[0-9a-f]{{2}}){{0,{_NAMED}}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which tasks to list. Without a state the order is by creation, else by entry into that state.

    Newest first: pending by when they were enqueued, scheduled and retrying by when they are due, running by the end
    of their lease, ended ones by their end. `since` and `until` bound the same instant. `cause` is the fingerprint of
    a dead-letter group.
    """

    state: TaskState | None = None
    type: str | None = None
    queue: str | None = None
    tag: str | None = None
    cause: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some tasks, and the cursor of the next page (None at the end). A page may be short and still not the last."""

    items: tuple[TaskSummary, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A task, its position, and the size of its record in bytes."""

    detail: TaskDetail
    position: int | None
    """How many tasks of its queue are before it, when it is pending."""
    cause: str | None
    """Its failure fingerprint, when it is a dead letter."""
    size: int


class Records:
    """The stored tasks."""

    def __init__(self, scripts: Scripts, queues: Iterable[str]) -> None:
        """`queues` are all queues, as `QueueRegister` knows them."""
        self.scripts = scripts
        self.queues = queues

    @property
    def redis(self) -> Redis:
        return self.scripts.redis

    @property
    def keys(self) -> Keys:
        return self.scripts.keys

    def get(self, task_id: str) -> TaskDetail:
        """Returns everything on record about a task.

        Raises TaskNotFound, or CorruptRecord when the key of the task holds no hash.
        """
        with translated():
            try:
                fields = self.redis.hgetall(self.keys.rq_job(task_id))
            except ResponseError as error:
                raise_unless_corruption(error)
                raise CorruptRecord(NO_RECORD, id=task_id) from error
            if not fields:
                raise TaskNotFound(id=task_id)
            result = self._result(task_id) if fields.get(b"state") == b"completed" else b""
        return read_detail(task_id, {text(name): raw(value) for name, value in fields.items()}, result)

    def read_many(self, ids: Sequence[str]) -> dict[str, Reading]:
        """Returns tasks with everything on record, in one step; unknown ids are omitted, corrupt records marked."""
        with translated():
            rows = self.scripts.call("read", *ids)
        found = zip(ids, rows, strict=True)
        return {task_id: _reading(task_id, *row) for task_id, row in found if row[0] != []}

    def discard(self, task_id: str) -> bool:
        """Removes a corrupt record; returns whether there was one."""
        with translated():
            return discard(self.scripts, task_id, self.queues)

    def summaries(self, ids: Sequence[str]) -> list[TaskSummary]:
        """Returns summaries of tasks; unknown ids are omitted."""
        if not ids:
            return []
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            for each in ids:
                pipeline.hmget(self.keys.rq_job(each), SUMMARY_FIELDS)
            rows = without_corrupt(pipeline.execute(raise_on_error=False), [])
        found = zip(ids, rows, strict=True)
        return [read_summary(each, row) for each, row in found if not row or any(row)]

    def deliveries(self, found: TaskDetail) -> list[TaskSummary]:
        """Returns the deliveries of this task's end, the latest first, at most the last twenty."""
        first = max(0, found.deliveries - MOST_DELIVERIES)
        return self.summaries([f"{found.summary.id}-hook-{each}" for each in range(found.deliveries, first, -1)])

    def state(self, task_id: str) -> TaskState:
        """Returns the state. Raises TaskNotFound."""
        with translated():
            try:
                state = self.redis.hget(self.keys.rq_job(task_id), "state")
            except ResponseError as error:
                raise_unless_corruption(error)
                raise CorruptRecord(NO_RECORD, id=task_id) from error
        if state is None:
            raise TaskNotFound(id=task_id)
        if text(state) not in list(TaskState):
            raise CorruptRecord("the record of this task has an unknown state", id=task_id)
        return TaskState(text(state))

    def wait(self, task_id: str, seconds: float) -> TaskState:
        """Waits until the task has ended, at most `seconds`; returns its state. Raises TaskNotFound.

        A result arrives in RQ's stream in the same step that ends the task, so the wait is a blocking read of that
        stream; a task that ends without one (cancelled, expired) is noticed within a second.
        """
        end = time.monotonic() + seconds
        stream = self.keys.rq_results(task_id)
        with translated():
            # Read first, so that a result written between the two steps is not missed.
            seen = self.redis.xrevrange(stream, count=1)
        last = text(seen[0][0]) if seen else "0"
        state = self.state(task_id)
        while not state.ended and (left := end - time.monotonic()) > 0:
            with translated():
                self.redis.xread({stream: last}, block=max(1, int(min(left, 0.5) * 1000)))
            state = self.state(task_id)
        return state

    def page(self, wanted: Filter, *, limit: int, cursor: str | None = None) -> Page:
        """Returns one page, newest first. Raises ValueError for an invalid cursor."""
        score, last_id = read_cursor(cursor)
        with translated():
            filters = (*_filter_arguments(wanted), *self._indexes(wanted))
            reply = self.scripts.call("page", score, last_id, limit, LOOK_AT, *filters)
        next_score, next_id, *rows = reply
        items = tuple(read_summary(text(row[0]), row[2:]) for row in rows)
        return Page(items=items, next_cursor=cursor_of(text(next_score), next_id) if next_score else None)

    def counts(self) -> dict[TaskState, int]:
        """Returns the number of tasks by state, all at one instant: none is missed while it changes state."""
        indexes = {state: self._state_indexes(state) for state in TaskState}
        with translated(), self.redis.pipeline(transaction=True) as pipeline:
            for names in indexes.values():
                for name in names:
                    pipeline.zcard(name)
            numbers = iter(pipeline.execute())
        return {state: sum(next(numbers) for _ in names) for state, names in indexes.items()}

    def _indexes(self, wanted: Filter) -> list[str]:
        """Returns the smallest indexes that hold every match."""
        if wanted.cause:
            return [self.keys.failure_group(wanted.cause)]
        if wanted.state is not None:
            queues = (wanted.queue,) if wanted.queue else None
            return self._state_indexes(wanted.state, queues)
        if wanted.tag:
            return [self.keys.tasks_with_tag(wanted.tag)]
        return [self.keys.tasks_of_type(wanted.type)] if wanted.type else [self.keys.TASKS]

    def _state_indexes(self, state: TaskState, queues: Iterable[str] | None = None) -> list[str]:
        per_queue: Mapping[TaskState, Callable[[str], str]] = {
            TaskState.SCHEDULED: self.keys.scheduled,
            TaskState.RETRYING: self.keys.retrying,
        }
        if state is TaskState.PENDING:
            return [key(queue) for queue in (queues or self.queues) for key in (self.keys.pending, self.keys.throttled)]
        if state in per_queue:
            return [per_queue[state](queue) for queue in (queues or self.queues)]
        if state is TaskState.RUNNING:
            return [self.keys.LEASES]
        return [self.keys.BLOCKED if state is TaskState.BLOCKED else self.keys.ended(state)]

    def _result(self, task_id: str) -> bytes:
        try:
            entries = self.redis.xrevrange(self.keys.rq_results(task_id), count=10)
        except ResponseError as error:
            raise_unless_corruption(error)
            return b"not a stream"
        # A stock worker that took an entry of ours may have added a failure after the result.
        returned = (fields[b"return_value"] for _, fields in entries or [] if fields and b"return_value" in fields)
        return raw(next(returned, b""))


def _reading(task_id: str, record: Sequence[bytes] | bytes, result: bytes, position: int, cause: bytes) -> Reading:
    if isinstance(record, bytes):
        detail = TaskDetail(summary=broken(task_id, NO_RECORD), data=None)
    else:
        fields = {text(name): value for name, value in zip(record[::2], record[1::2], strict=True)}
        detail = read_detail(task_id, fields, result)
    return Reading(
        detail=detail,
        position=position if position >= 0 else None,
        cause=text(cause) if cause else None,
        size=sum(map(len, record)) + len(result) if not isinstance(record, bytes) else 0,
    )


def read_cursor(cursor: str | None) -> tuple[str, bytes]:
    """Returns the score and id of a cursor. Raises ValueError for an invalid one."""
    if cursor is None:
        return "", b""
    score, _, member = cursor.partition("_")
    if not _SCORE.fullmatch(score) or not (TASK_ID.fullmatch(member) or _ESCAPED.fullmatch(member)):
        raise ValueError("not a cursor of this list")
    return _INFINITE.get(score, score), member_of(member)


def cursor_of(score: str, member: bytes) -> str:
    """Returns the cursor of the page after this entry, which may be corrupt."""
    return f"{score.replace('inf', '1e999')}_{encode_cursor(member)}"


def encode_cursor(member: bytes, behind: bytes = b"") -> str:
    """Returns a member of an index as cursors name it: an unusual one by its bytes, a long one by the first of them.

    `behind` then follows these, where the order is such that they alone would lead back to it.
    """
    if TASK_ID.fullmatch(text(member)):
        return text(member)
    return f"~{(member if len(member) <= _NAMED else member[: _NAMED - 1] + behind).hex()}"


def member_of(said: str) -> bytes:
    """Returns the member that a cursor names."""
    return bytes.fromhex(said[1:]) if _ESCAPED.fullmatch(said) else said.encode(errors="replace")


def _filter_arguments(wanted: Filter) -> list[str]:
    return [
        wanted.state or "",
        wanted.type or "",
        wanted.queue or "",
        wanted.tag or "",
        str(instant_us(wanted.since)) if wanted.since else "",
        str(instant_us(wanted.until)) if wanted.until else "",
    ]


def discard(scripts: Scripts, task_id: str, queues: Iterable[str]) -> bool:
    """Removes a corrupt record; returns whether there was one."""
    return bool(scripts.call("discard", task_id, *queues))
