"""Reading tasks back: one with everything on record, or a page of many. Nothing here changes anything."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from redis.exceptions import ResponseError

from shared import keys, wire
from shared.clock import instant, instant_us
from shared.errors import CorruptRecord, TaskNotFound
from shared.redis_client import raw, text, translated
from shared.tasks import (
    Attempt,
    BatchPlace,
    ErrorInfo,
    InnerSpan,
    On,
    OnParentFailure,
    Outcome,
    Parent,
    Progress,
    TaskDetail,
    TaskState,
    TaskSummary,
    Webhook,
)

if TYPE_CHECKING:
    from redis import Redis

    from shared.scripts import Scripts

LOOK_AT = 1000
"""Tasks that one page may look at while it filters: about 3 ms of Redis, whatever the number stored."""
MOST_DELIVERIES = 20
"""Deliveries that are shown with the task that they tell of."""

NO_RECORD = "the key of this task does not hold a record"
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, OSError, RecursionError)
"""What reading damaged values raises: also moments beyond all calendars, and JSON nested beyond all reason."""

T = TypeVar("T")
_SCORE = re.compile(r"[0-9]{1,20}(?:\.[0-9]{1,20})?(?:e\+?[0-9]{1,3})?")
_MEMBER = re.compile(r"[A-Za-z0-9_-]{1,128}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which tasks to list. Without a state the order is by creation, else by when the task came into that state.

    Newest first: pending by when they were enqueued, scheduled and retrying by when they are due, running by the end
    of their lease, ended ones by their end. `since` and `until` bound that same moment.
    `cause` is the fingerprint of a cause of dead letters.
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
    """Some tasks, and where the next page begins (None at the end). A page may be short and still not the last."""

    items: tuple[TaskSummary, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A task, where it stands, and how many bytes its record takes."""

    detail: TaskDetail
    position: int | None
    """How many tasks of its queue wait before it, when it is pending."""
    cause: str | None
    """The fingerprint of its cause, when it is a dead letter."""
    size: int


class Records:
    """The tasks as they are stored."""

    def __init__(self, scripts: Scripts, queues: Sequence[str]) -> None:
        self.scripts = scripts
        self.queues = tuple(queues)

    @property
    def redis(self) -> Redis:
        return self.scripts.redis

    def get(self, task_id: str) -> TaskDetail:
        """Everything on record about a task.

        Raises TaskNotFound, or CorruptRecord when the key of the task holds no hash.
        """
        with translated():
            try:
                fields = self.redis.hgetall(keys.rq_job(task_id))
            except ResponseError as error:
                raise CorruptRecord(NO_RECORD, id=task_id) from error
            if not fields:
                raise TaskNotFound(id=task_id)
            result = self._result(task_id) if fields.get(b"state") == b"completed" else b""
        return read_detail(task_id, {text(name): raw(value) for name, value in fields.items()}, result)

    def read_many(self, ids: Sequence[str]) -> dict[str, Reading]:
        """Tasks with everything on record, in one step; unknown ids are left out, a broken record is shown as such."""
        with translated():
            rows = self.scripts.read(ids)
        found = zip(ids, rows, strict=True)
        return {task_id: _reading(task_id, *row) for task_id, row in found if row[0] != []}

    def summaries(self, ids: Sequence[str]) -> list[TaskSummary]:
        """Some tasks in short; unknown ids are left out."""
        if not ids:
            return []
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            for each in ids:
                pipeline.hmget(keys.rq_job(each), SUMMARY_FIELDS)
            rows = pipeline.execute(raise_on_error=False)
        found = [(each, [] if isinstance(row, Exception) else row) for each, row in zip(ids, rows, strict=True)]
        return [read_summary(each, row) for each, row in found if not row or any(row)]

    def deliveries(self, found: TaskDetail) -> list[TaskSummary]:
        """The tasks that told of this one's end, the latest first, at most the last twenty."""
        first = max(0, found.deliveries - MOST_DELIVERIES)
        return self.summaries([f"{found.summary.id}-hook-{each}" for each in range(found.deliveries, first, -1)])

    def state(self, task_id: str) -> TaskState:
        """Only the state. Raises TaskNotFound."""
        with translated():
            try:
                state = self.redis.hget(keys.rq_job(task_id), "state")
            except ResponseError as error:
                raise CorruptRecord(NO_RECORD, id=task_id) from error
        if state is None:
            raise TaskNotFound(id=task_id)
        if text(state) not in list(TaskState):
            raise CorruptRecord("the record of this task is in a state that there is not", id=task_id)
        return TaskState(text(state))

    def wait(self, task_id: str, seconds: float) -> TaskState:
        """Waits until the task has ended, at most `seconds`; its state then. Raises TaskNotFound.

        A result arrives in RQ's stream in the same step that ends the task, so the wait is a blocking read of that
        stream; a task that ends without one (cancelled, expired) is noticed within a second.
        """
        end = time.monotonic() + seconds
        stream = keys.rq_results(task_id)
        with translated():
            # Read first, so that a result written between the two steps is not slept through.
            seen = self.redis.xrevrange(stream, count=1)
        last = text(seen[0][0]) if seen else "0"
        state = self.state(task_id)
        while not state.ended and (left := end - time.monotonic()) > 0:
            with translated():
                self.redis.xread({stream: last}, block=max(1, int(min(left, 0.5) * 1000)))
            state = self.state(task_id)
        return state

    def page(self, wanted: Filter, *, limit: int, cursor: str | None = None) -> Page:
        """One page, newest first. Raises ValueError when the cursor is not one that a page gave out."""
        score, last_id = read_cursor(cursor)
        with translated():
            reply = self.scripts.page(
                [score, last_id, limit, LOOK_AT, *_filter_arguments(wanted), *self._indexes(wanted)]
            )
        next_score, next_id, *rows = reply
        items = tuple(read_summary(row[0].decode(), row[2:]) for row in rows)
        return Page(items=items, next_cursor=f"{next_score.decode()}_{next_id.decode()}" if next_id else None)

    def counts(self) -> dict[TaskState, int]:
        """How many tasks are in each state, all at one moment: none is missed while it moves from one to another."""
        indexes = {state: self._state_indexes(state) for state in TaskState}
        with translated(), self.redis.pipeline(transaction=True) as pipeline:
            for names in indexes.values():
                for name in names:
                    pipeline.zcard(name)
            numbers = iter(pipeline.execute())
        return {state: sum(next(numbers) for _ in names) for state, names in indexes.items()}

    def _indexes(self, wanted: Filter) -> list[str]:
        """The narrowest indexes that hold every match."""
        if wanted.cause:
            return [keys.cause(wanted.cause)]
        if wanted.state is not None:
            queues = (wanted.queue,) if wanted.queue else self.queues
            return self._state_indexes(wanted.state, queues)
        if wanted.tag:
            return [keys.tasks_with_tag(wanted.tag)]
        return [keys.tasks_of_type(wanted.type)] if wanted.type else [keys.TASKS]

    def _state_indexes(self, state: TaskState, queues: Sequence[str] | None = None) -> list[str]:
        per_queue: Mapping[TaskState, Callable[[str], str]] = {
            TaskState.SCHEDULED: keys.scheduled,
            TaskState.RETRYING: keys.retrying,
        }
        if state is TaskState.PENDING:
            return [key(queue) for queue in (queues or self.queues) for key in (keys.pending, keys.aside)]
        if state in per_queue:
            return [per_queue[state](queue) for queue in (queues or self.queues)]
        if state is TaskState.RUNNING:
            return [keys.LEASES]
        return [keys.BLOCKED if state is TaskState.BLOCKED else keys.ended(state)]

    def _result(self, task_id: str) -> bytes:
        try:
            entries = self.redis.xrevrange(keys.rq_results(task_id), count=1)
        except ResponseError:
            return b"not a stream"
        return raw((entries[0][1] or {}).get(b"return_value", b"")) if entries else b""


def _reading(task_id: str, record: Sequence[bytes] | bytes, result: bytes, position: int, cause: bytes) -> Reading:
    if isinstance(record, bytes):
        detail = TaskDetail(summary=_broken(task_id, NO_RECORD), data=None)
    else:
        fields = {text(name): value for name, value in zip(record[::2], record[1::2], strict=True)}
        detail = read_detail(task_id, fields, result)
    return Reading(
        detail=detail,
        position=position if position >= 0 else None,
        cause=text(cause) if cause else None,
        size=sum(map(len, record)) + len(result) if not isinstance(record, bytes) else 0,
    )


def _returned(value: bytes) -> Any:
    return json.loads(base64.b64decode(value, validate=True)) if value else None


def read_cursor(cursor: str | None) -> tuple[str, str]:
    """The score and id that a cursor stands for. Raises ValueError for one that no page gave out."""
    if cursor is None:
        return "", ""
    score, _, task_id = cursor.partition("_")
    if not _SCORE.fullmatch(score) or not _MEMBER.fullmatch(task_id):
        raise ValueError("not a cursor of this list")
    return score, task_id


def _filter_arguments(wanted: Filter) -> list[str]:
    return [
        wanted.state or "",
        wanted.type or "",
        wanted.queue or "",
        wanted.tag or "",
        str(instant_us(wanted.since)) if wanted.since else "",
        str(instant_us(wanted.until)) if wanted.until else "",
    ]


SUMMARY_FIELDS = (
    "state",
    "description",
    "origin",
    "attempt",
    "failures",
    "crashes",
    "created_at",
    "started_at",
    "ended_at",
    "due_at",
    "worker_name",
    "tags",
    "error",
    "progress",
)
"""In the order in which `page.lua` answers them."""


def read_summary(task_id: str, values: Sequence[bytes | None]) -> TaskSummary:
    """A task from the fields of its record; one that cannot be read is shown as broken instead of raising."""
    fields = {name: value for name, value in zip(SUMMARY_FIELDS, values, strict=False) if value is not None}
    try:
        return _summary(task_id, fields)
    except UNREADABLE as error:
        return _broken(task_id, f"this record cannot be read: {type(error).__name__} {error}")


def _broken(task_id: str, why: str) -> TaskSummary:
    return TaskSummary(
        id=task_id,
        type="?",
        state=TaskState.FAILED,
        queue="?",
        attempt=0,
        failures=0,
        crashes=0,
        created_at=None,
        corrupt=why,
    )


def _summary(task_id: str, fields: Mapping[str, bytes]) -> TaskSummary:
    state = TaskState(fields["state"].decode())
    due = state in (TaskState.SCHEDULED, TaskState.RETRYING)
    return TaskSummary(
        id=task_id,
        type=fields["description"].decode(),
        state=state,
        queue=fields["origin"].decode(),
        attempt=int(fields.get("attempt", 0)),
        failures=int(fields.get("failures", 0)),
        crashes=int(fields.get("crashes", 0)),
        created_at=_moment(fields.get("created_at")),
        started_at=_moment(fields.get("started_at")),
        ended_at=_moment(fields.get("ended_at")) if state.ended else None,
        due_at=instant(float(fields["due_at"])) if due and "due_at" in fields else None,
        worker=fields["worker_name"].decode() if state is TaskState.RUNNING and "worker_name" in fields else None,
        tags=_words(json.loads(fields["tags"])) if "tags" in fields else (),
        error=_error(fields.get("error")) if state is not TaskState.COMPLETED else None,
        progress=_progress(json.loads(fields["progress"])) if "progress" in fields else None,
    )


def read_detail(task_id: str, fields: Mapping[str, bytes], result: bytes = b"") -> TaskDetail:
    """A task with everything from its record; parts that cannot be read are left out and named in `corrupt`."""
    summary = read_summary(task_id, [fields.get(name) for name in SUMMARY_FIELDS])
    wrong: list[str] = [summary.corrupt] if summary.corrupt else []

    def attempt_read(what: str, read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except (*UNREADABLE, CorruptRecord) as error:
            wrong.append(f"{what} cannot be read: {error}")
            return otherwise

    detail = TaskDetail(
        summary=summary,
        data=attempt_read("the data", lambda: json.loads(wire.decode(summary.type, fields["data"])), None),
        result=attempt_read("the result", lambda: _returned(result), None),
        attempts=attempt_read("the attempts", lambda: _attempts(fields), ()),
        timeout=attempt_read("the time limit", lambda: _seconds(fields.get("timeout")), None),
        retry=attempt_read("the retry policy", lambda: _numbers(json.loads(fields.get("retry", b"{}"))), {}),
        expires_at=attempt_read(
            "the expiry", lambda: instant(float(fields["expires_at"])) if "expires_at" in fields else None, None
        ),
        cancel_requested=fields["cancel"].decode(errors="replace") if "cancel" in fields else None,
        unique_key=_after_colon(fields.get("unique")),
        parents=attempt_read("what it depends on", lambda: _parents(fields.get("parents")), ()),
        on_parent_failure=attempt_read(
            "what it does when a parent fails",
            lambda: OnParentFailure(fields.get("on_parent_failure", b"cancel").decode()),
            OnParentFailure.CANCEL,
        ),
        batch=attempt_read("its place in a batch", lambda: _place(fields), None),
        children=tuple(_children(fields)),
        children_count=attempt_read("what depends on it", lambda: int(fields.get("children", 0)), 0),
        after_batch=fields["after_batch"].decode(errors="replace") if "after_batch" in fields else None,
        limit_key=text(fields["limit_key"]) if "limit_key" in fields else None,
        fair_key=text(fields["fair_key"]) if "fair_key" in fields else None,
        aside_for=_group(fields.get("line")),
        webhook=attempt_read("its webhook", lambda: _webhook(fields.get("webhook")), None),
        deliveries=attempt_read("its deliveries", lambda: int(fields.get("deliveries", 0)), 0),
        delivery_of=text(fields["delivery_of"]) if "delivery_of" in fields else None,
        meta=attempt_read("the metadata", lambda: _texts(json.loads(fields.get("meta", b"{}"))), {}),
    )
    return replace(detail, summary=replace(summary, corrupt="; ".join(wrong) or None))


def _after_colon(value: bytes | None) -> str | None:
    """A unique key is kept with its type in front."""
    return value.decode(errors="replace").partition(":")[2] if value else None


def _parents(value: bytes | None) -> tuple[Parent, ...]:
    return tuple(Parent(task_id=str(parent), on=On(on)) for parent, on in json.loads(value or b"[]"))


def _children(fields: Mapping[str, bytes]) -> Iterator[str]:
    number = 1
    while (child := fields.get(f"child:{number}")) is not None:
        yield child.decode(errors="replace")
        number += 1


def _webhook(value: bytes | None) -> Webhook | None:
    about = json.loads(value) if value else None
    return (
        Webhook(url=_word(about["url"]), events=_words(about.get("events", [])), retry=about.get("retry"))
        if about
        else None
    )


def _place(fields: Mapping[str, bytes]) -> BatchPlace | None:
    if "batch" not in fields:
        return None
    return BatchPlace(batch_id=fields["batch"].decode(), index=int(fields.get("batch_index", 0)))


def _group(line: bytes | None) -> str | None:
    """A line is named queue|limit|tenant."""
    return line.decode(errors="replace").split("|")[1] if line and line.count(b"|") == 2 else None


def _attempts(fields: Mapping[str, bytes]) -> tuple[Attempt, ...]:
    """Every attempt on record, and the one that runs now."""
    numbers = sorted(int(name[8:]) for name in fields if name.startswith("attempt:"))
    attempts = [read_attempt(number, fields[f"attempt:{number}"]) for number in numbers]
    current = int(fields.get("attempt", 0))
    if fields.get("state") == b"running" and current not in numbers:
        attempts.append(
            Attempt(
                number=current,
                worker=fields.get("worker_name", b"").decode() or None,
                enqueued_at=_moment(fields.get("enqueued_at")),
                started_at=_moment(fields.get("started_at")),
            )
        )
    return tuple(attempts)


def read_attempt(number: int, record: bytes) -> Attempt:
    """One attempt from its JSON. Raises ValueError or KeyError when it is not an attempt's."""
    fields = json.loads(record)
    return Attempt(
        number=number,
        worker=_word(fields["worker"]) if fields.get("worker") else None,
        enqueued_at=_instant(fields.get("enqueued_at")),
        started_at=_instant(fields.get("started_at")),
        ended_at=_instant(fields.get("ended_at")),
        outcome=Outcome(fields["outcome"]),
        error=_error_info(fields.get("error")),
        retry_delay=timedelta(seconds=fields["retry_delay"]) if fields.get("retry_delay") is not None else None,
        trace_id=_word(fields["trace_id"]) if fields.get("trace_id") else None,
        logs=_words(fields.get("logs") or []),
        spans=tuple(map(_inner_span, fields.get("spans", ()))),
        spans_left_out=int(fields.get("spans_left_out", 0)),
    )


def _inner_span(fields: Mapping[str, Any]) -> InnerSpan:
    return InnerSpan(
        name=str(fields["name"]),
        after=timedelta(microseconds=fields["after_us"]),
        took=timedelta(microseconds=fields["us"]),
        failed=bool(fields.get("error")),
    )


def _instant(us: float | None) -> datetime | None:
    return instant(us) if us else None


def _error(value: bytes | None) -> ErrorInfo | None:
    return _error_info(json.loads(value)) if value else None


def _error_info(fields: Mapping[str, str] | None) -> ErrorInfo | None:
    if not fields:
        return None
    return ErrorInfo(
        type=_word(fields["type"]),
        message=_word(fields["message"]),
        traceback=_word(fields["traceback"]) if fields.get("traceback") else None,
        place=_word(fields.get("place", "")),
    )


def _progress(said: Mapping[str, Any]) -> Progress:
    return Progress(fraction=float(said["fraction"]), message=_word(said.get("message", "")))


def _word(value: object) -> str:
    """A text out of JSON. Raises TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:40]} is no text")
    return value


def _words(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise TypeError(f"{str(values)[:40]} is no list")
    return tuple(map(_word, values))


def _texts(values: Any) -> dict[str, str]:
    return {name: _word(value) for name, value in values.items()}


def _numbers(values: Any) -> dict[str, float]:
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values.values()):
        raise TypeError("not all of it are numbers")
    return dict(values)


def _moment(value: bytes | None) -> datetime | None:
    """An instant as RQ writes it."""
    if not value:
        return None
    return datetime.strptime(value.decode(), "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


def _seconds(value: bytes | None) -> timedelta | None:
    return timedelta(seconds=float(value)) if value else None
