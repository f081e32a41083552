"""Reads tasks: one with everything on record, or a page of many."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, Any

from redis.exceptions import ResponseError

from firmq.shared.domain import task_data
from firmq.shared.domain.clock import instant_us, to_us
from firmq.shared.domain.decode import UNREADABLE
from firmq.shared.domain.payload import PayloadReference
from firmq.shared.domain.search import DataField, SearchError, parse
from firmq.shared.domain.strict_json import load_anything
from firmq.shared.domain.task import TASK_ID, TaskDetail, TaskState, TaskSummary
from firmq.shared.errors import CorruptRecord, TaskNotFound
from firmq.shared.redis.client import raw, text, translated
from firmq.shared.redis.quarantine import raise_unless_corruption, without_corrupt
from firmq.shared.registry import added
from firmq.shared.stores.payloads import Payloads
from firmq.shared.stores.record_fields import SUMMARY_FIELDS, broken, read_detail, read_summary

if TYPE_CHECKING:
    from redis import Redis

    from firmq.shared.config.settings import Settings
    from firmq.shared.redis.keys import Keys
    from firmq.shared.redis.scripts import Scripts

LOOK_AT = 1000
"""Tasks that one page may examine while it filters: about 3 ms of Redis, whatever the number stored."""
READ_AT_ONCE = 50
READ_BYTES = 1 << 20
"""Stored data of many tasks that is read at a time. Parsed, it can take thirty times as much memory."""
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
    a dead-letter group, `bulk` the bulk action that cancelled or deleted them (for bulk actions only), `deleted`
    selects deleted tasks that can be restored, by their deletion. `id` is the beginning or the end of the id, `error` a
    part of the error, `worker` and `app_version` are the last attempt's, and `older_than` and `newer_than` bound
    the time since the creation, `min_score` and `max_score` the score. `signal` is the name of the signal that a
    scheduled task waits for, or "*" for any.
    """

    state: TaskState | None = None
    type: str | None = None
    queue: str | None = None
    tag: str | None = None
    submitted_by: str | None = None
    cause: str | None = None
    bulk: str | None = None
    deleted: bool = False
    since: datetime | None = None
    until: datetime | None = None
    id: str | None = None
    error: str | None = None
    worker: str | None = None
    app_version: str | None = None
    older_than: timedelta | None = None
    newer_than: timedelta | None = None
    signal: str | None = None
    min_score: float | None = None
    max_score: float | None = None
    data: tuple[DataField, ...] = ()

    def content(self, now_us: int) -> dict[str, Any]:
        """Returns the criteria for `search` of `_filter.lua`; empty when only fields before `id` are set."""
        found: dict[str, Any] = {
            "id": self.id,
            "error": self.error,
            "worker": self.worker,
            "version": self.app_version,
            "created_from": now_us - to_us(self.newer_than) if self.newer_than else None,
            "created_to": now_us - to_us(self.older_than) if self.older_than else None,
            "min_score": self.min_score,
            "max_score": self.max_score,
            "data": [{"path": each.path.split("."), **each.forms} for each in self.data],
        }
        return {name: value for name, value in found.items() if value or value == 0}


def filter_of(given: Mapping[str, Any], search: str = "") -> Filter:
    """Returns the filter of these fields and the words of a search. Raises SearchError.

    A cause is one of dead letters, so a filter by it is one of failed tasks; one by a signal is of scheduled ones.
    """
    found = parse(search)
    for name in found:
        if name in given and name != "data":
            raise SearchError(f"{name} is in the search and a parameter of its own too: remove one")
    both = {**given, **found}
    if data := (*given.get("data", ()), *found.get("data", ())):
        both["data"] = data
    implied = TaskState.FAILED if "cause" in both else TaskState.SCHEDULED if "signal" in both else None
    return Filter(**{"state": implied, **both})


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some tasks, and the cursor of the next page (None at the end). A page may be short and still not the last."""

    items: tuple[TaskSummary, ...]
    next_cursor: str | None
    positions: tuple[str, ...] = ()
    """The cursor after each item."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A task, its position, and the size of its record in bytes."""

    detail: TaskDetail
    position: int | None
    """How many tasks of its queue are before it, when it is pending."""
    cause: str | None
    """Its failure fingerprint, when it is a dead letter."""
    size: int


class Unread(Enum):
    """Why the data of a task is not read: it is too large, or it is a payload or cannot be read."""

    LARGE = "large"
    NOTHING = "nothing"


class Records:
    """The stored tasks."""

    def __init__(self, scripts: Scripts, queues: Collection[str], payloads: Payloads | None = None) -> None:
        """`queues` are all queues, as `QueueRegister` knows them."""
        self.scripts = scripts
        self.queues = queues
        self.payloads = payloads or Payloads()

    @property
    def redis(self) -> Redis:
        return self.scripts.redis

    @property
    def keys(self) -> Keys:
        return self.scripts.keys

    def get(self, task_id: str) -> TaskDetail:
        """Returns everything about a task. Raises the errors of `record`, and PayloadUnavailable."""
        return self.payloads.read_all(self.record(task_id))

    def end(self, task_id: str) -> TaskDetail:
        """Returns an ended task with its result. Raises the errors of `get`."""
        found = self.record(task_id)
        return replace(found, result=self.payloads.read(found.result))

    def record(self, task_id: str) -> TaskDetail:
        """Returns everything on record about a task; of payloads, the references.

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
        """Returns tasks with everything on record; unknown ids are omitted, corrupt records marked."""
        return {task_id: found for task_id, found in self.read_each(ids) if found}

    def read_each(self, ids: Sequence[str]) -> Iterator[tuple[str, Reading | None]]:
        """Yields tasks with everything on record, some megabytes in a step; None for unknown ids.

        Of payloads they have the references.
        """
        while ids:
            with translated():
                rows = self.scripts.call("read", *ids[:READ_AT_ONCE])
            for task_id, row in zip(ids, rows, strict=False):
                yield task_id, _reading(task_id, *row) if row[0] != [] else None
            ids = ids[len(rows) :]

    def discard(self, task_id: str) -> bool:
        """Removes a corrupt record; returns whether there was one."""
        with translated():
            return discard(self.scripts, task_id, self.queues)

    def summaries(self, ids: Sequence[str], *, deleted: bool = False) -> list[TaskSummary]:
        """Returns summaries of tasks, or of deleted ones that can be restored; unknown ids are omitted."""
        key = self.keys.deleted if deleted else self.keys.rq_job
        if not ids:
            return []
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            for each in ids:
                pipeline.hmget(key(each), SUMMARY_FIELDS)
            rows = without_corrupt(pipeline.execute(raise_on_error=False), [])
        found = zip(ids, rows, strict=True)
        return [read_summary(each, row) for each, row in found if not row or any(row)]

    def small_data(
        self, tasks: Sequence[TaskSummary], most: int, *, deleted: bool = False
    ) -> Iterator[tuple[TaskSummary, Any]]:
        """Yields tasks with the data of those whose stored data has at most `most` bytes, else with an `Unread`.

        At most READ_BYTES of it are in memory at a time.
        """
        key = self.keys.deleted if deleted else self.keys.rq_job
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            for each in tasks:
                pipeline.hstrlen(key(each.id), "data")
            # A Redis user with the rights of an earlier version may not read this; lists then have no previews.
            sizes = pipeline.execute(raise_on_error=False) if tasks else []
        part, held = list[TaskSummary](), 0
        for each, size in zip(tasks, sizes, strict=True):
            if isinstance(size, int) and 0 < size <= most and not each.archived:
                part, held = [*part, each], held + size
            else:
                yield each, Unread.LARGE if isinstance(size, int) and size > most else Unread.NOTHING
            if held > READ_BYTES:
                yield from self._data(part, key)
                part, held = [], 0
        yield from self._data(part, key)

    def _data(self, tasks: Sequence[TaskSummary], key: Callable[[str], str]) -> Iterator[tuple[TaskSummary, Any]]:
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            for each in tasks:
                pipeline.hget(key(each.id), "data")
            stored = pipeline.execute(raise_on_error=False) if tasks else []
        for each, value in zip(tasks, stored, strict=True):
            found: Any = Unread.NOTHING
            with suppress(*UNREADABLE, CorruptRecord):
                data = task_data.decode(each.type, raw(value))
                if not isinstance(data, PayloadReference):
                    found = load_anything(data)
            yield each, found

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
            content = wanted.content(self.scripts.now_us() if wanted.older_than or wanted.newer_than else 0)
            more = json.dumps(content) if content else ""
            filters = (*_filter_arguments(wanted), more, *self.indexes(wanted))
            reply = self.scripts.call("page", score, last_id, limit, LOOK_AT, *filters)
        next_score, next_id, *rows = reply
        items = tuple(read_summary(text(row[0]), row[2:]) for row in rows)
        return Page(
            items=items,
            next_cursor=cursor_of(text(next_score), next_id) if next_score else None,
            positions=tuple(cursor_of(text(row[1]), row[0]) for row in rows),
        )

    def kept(self, task_ids: Collection[str]) -> set[str]:
        """Returns the given tasks that a feature keeps outside of Redis."""
        return set()

    def counts(self) -> dict[TaskState, int]:
        """Returns the number of tasks by state, all at one instant: none is missed while it changes state."""
        indexes = {state: self._state_indexes(state, self.queues) for state in TaskState}
        with translated():
            numbers = iter(self.scripts.call("counts", *chain.from_iterable(indexes.values())))
        return {state: sum(next(numbers) for _ in names) for state, names in indexes.items()}

    def counts_of_types(self, types: Sequence[str]) -> dict[str, int]:
        """Returns the number of tasks of each of these types."""
        if not types:
            return {}
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            for each in types:
                pipeline.zcard(self.keys.tasks_of_type(each))
            return dict(zip(types, without_corrupt(pipeline.execute(raise_on_error=False), 0), strict=True))

    def indexes(self, wanted: Filter, without: str = "") -> list[str]:
        """Returns the smallest indexes that hold every match, except matches in the queue `without`."""
        if wanted.deleted:
            return [self.keys.DELETED]
        if wanted.cause:
            return [self.keys.failure_group(wanted.cause)]
        if wanted.signal:
            return [self.keys.AWAITING if wanted.signal == "*" else self.keys.awaiting(wanted.signal)]
        if wanted.state is not None:
            queues = (wanted.queue,) if wanted.queue else self.queues
            return self._state_indexes(wanted.state, [each for each in queues if each != without])
        if wanted.tag:
            return [self.keys.tasks_with_tag(wanted.tag)]
        return [self.keys.tasks_of_type(wanted.type)] if wanted.type else [self.keys.TASKS]

    @staticmethod
    def is_by_queue(state: TaskState) -> bool:
        """Returns whether the tasks in this state are indexed by queue."""
        return state in (TaskState.PENDING, TaskState.SCHEDULED, TaskState.RETRYING)

    def _state_indexes(self, state: TaskState, queues: Iterable[str]) -> list[str]:
        per_queue: Mapping[TaskState, Callable[[str], str]] = {
            TaskState.SCHEDULED: self.keys.scheduled,
            TaskState.RETRYING: self.keys.retrying,
        }
        if state is TaskState.PENDING:
            return [key(queue) for queue in queues for key in (self.keys.pending, self.keys.throttled)]
        if state in per_queue:
            return [per_queue[state](queue) for queue in queues]
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


def all_records(records: Records, settings: Settings) -> Records:
    """Returns these records with those that features keep beside Redis."""
    for extend in added("records"):
        records = extend(records, settings)
    return records


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
        wanted.submitted_by or "",
        str(instant_us(wanted.since)) if wanted.since else "",
        str(instant_us(wanted.until)) if wanted.until else "",
    ]


def discard(scripts: Scripts, task_id: str, queues: Iterable[str]) -> bool:
    """Removes a corrupt record; returns whether there was one."""
    return bool(scripts.call("discard", task_id, *queues))
