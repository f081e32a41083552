"""Typed values for the responses of a gateway. Fields added by a newer gateway are ignored."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar

from firmq.shared.domain.task_state import TaskState
from firmq.shared.submission.answers import Task
from firmq.shared.submission.problems import NoGateway

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchItem:
    """The outcome of one task of a batch: accepted with `task_id`, or refused with `problem`."""

    index: int
    task_id: str | None = None
    status: TaskState | None = None
    problem: Mapping[str, Any] | None = None

    @property
    def accepted(self) -> bool:
        return self.problem is None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedBatch:
    """A batch that was made from earlier tasks, with the outcome of each task in their order."""

    batch_id: str
    accepted: int
    refused: int
    items: tuple[BatchItem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch with its progress and counts; `status` is receiving, running or ended."""

    batch_id: str
    name: str
    status: str
    progress: float
    total: int
    ended: int
    counts: Mapping[str, int]
    created_at: datetime
    removed: int = 0
    max_running: int | None = None
    stop_on_error: int | None = None
    then: str | None = None
    ended_at: datetime | None = None
    stopped: str | None = None
    stopped_at: datetime | None = None
    work: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatus:
    """A queue with its counts."""

    name: str
    weight: int
    default: bool
    pending: int
    scheduled: int
    retrying: int
    paused: bool
    foreign: int = 0
    oldest_at: datetime | None = None
    paused_reason: str | None = None
    paused_by: str | None = None
    paused_at: datetime | None = None
    paused_until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeStatus:
    """A task type; `live` is whether a live worker has it."""

    name: str
    live: bool
    versions: int
    last_seen_at: datetime
    last_seen_on: str
    paused: bool
    description: str = ""
    data_schema: Mapping[str, Any] = field(default_factory=dict)
    paused_reason: str | None = None
    paused_by: str | None = None
    paused_at: datetime | None = None
    paused_until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    """A worker as of its last heartbeat; `state` is idle, busy, draining, silent or lost."""

    name: str
    state: str
    host: str
    pid: int
    started_at: datetime
    reason: str | None = None
    version: str = ""
    app_version: str | None = None
    queues: tuple[str, ...] = ()
    executors: int = 0
    slots: int = 0
    active: int = 0
    held: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    crashed: int = 0
    lost: int = 0
    busy_seconds: float = 0
    memory_bytes: int = 0
    last_heartbeat_at: datetime | None = None
    running: Sequence[Mapping[str, Any]] = ()
    queue_executors: Sequence[Mapping[str, Any]] = ()
    blocking_types: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitStatus:
    """A limit in force with its use; `source` is api, settings, handler or share."""

    name: str
    source: str
    running: int
    waiting: int
    concurrency: int | None = None
    rate: str | None = None
    burst: float | None = None
    set_at: datetime | None = None
    tokens: float | None = None
    next_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkPreview:
    """How many tasks a bulk action would process now, and some of them."""

    count: int
    exact: bool
    sample: tuple[Task, ...] = ()
    changes: Sequence[Mapping[str, Any]] = ()
    """With a patch: task_id, before, after and problem of some of them."""
    checked: int = 0
    unfit: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueCount:
    """A value, and how many tasks have it."""

    value: str
    tasks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueCounts:
    """The most frequent values of a field of the data, or of the tags (`field` is None)."""

    distinct: int
    often: int
    missing: int
    field: str | None = None
    values: tuple[ValueCount, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """How many of `tasks` have which content; `complete` is whether these are all that match.

    `large` further tasks have more than 64 kB of data, and are not counted.
    """

    tasks: int
    complete: bool
    tags: ValueCounts
    large: int = 0
    fields: tuple[ValueCounts, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEvent:
    """An event of the system, or a change by a user; `link` is the path of its page in the dashboard."""

    at: datetime
    kind: str
    title: str
    detail: str
    link: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The events of a range, the earliest first; `incomplete` names missing ones."""

    since: datetime
    until: datetime
    complete: bool
    incomplete: tuple[str, ...]
    events: tuple[TimelineEvent, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkAction:
    """A bulk action with its progress; `status` is running, paused, aborted or finished."""

    action_id: str
    action: str
    what: str
    status: str
    rate: int
    total: int
    done: int
    skipped: int
    created_by: str
    created_at: datetime
    exact: bool = True
    unfit: int = 0
    to: str | None = None
    outcomes: Mapping[str, int] = field(default_factory=dict)
    waiting: int = 0
    canary: int | None = None
    stopped_because: str | None = None
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """A change that a person or a client made."""

    id: str
    at: datetime
    who: str
    what: str
    about: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """The current state of a lock; `remaining_time` is in milliseconds."""

    name: str
    lock_key: str
    locked: bool
    remaining_time: int
    owner: str | None = None
    fencing_token: str | None = None
    fencing_number: int | None = None
    thread_id: int | None = None
    acquired_at: datetime | None = None


def read(kind: type[T], document: Mapping[str, Any]) -> T:
    """Returns a value of type `kind` from a response. Raises NoGateway when fields are missing or have other types."""
    hints = _hints(kind)  # type: ignore[arg-type]  # a class is hashable
    try:
        known = {_snake(name): value for name, value in document.items()}
        return kind(**{name: _value(hint, known[name]) for name, hint in hints.items() if name in known})
    except (AttributeError, TypeError, ValueError) as error:
        raise NoGateway(f"it sent an invalid {kind.__name__}: {error}") from error


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {each.name: hints[each.name] for each in fields(kind)}


def _value(hint: Any, value: Any) -> Any:
    if value is None or hint is Any:
        return value
    if isinstance(hint, types.UnionType):
        hint = next(each for each in typing.get_args(hint) if each is not type(None))
    if typing.get_origin(hint) is tuple:
        return tuple(_value(typing.get_args(hint)[0], each) for each in value)
    if hint is datetime:
        return datetime.fromisoformat(value)
    if is_dataclass(hint):
        return read(typing.cast("type[Any]", hint), value)
    if hint is TaskState:
        return TaskState(value)
    return _known(hint, value) if isinstance(hint, type) and issubclass(hint, StrEnum) else value


def _known(words: type[StrEnum], value: Any) -> Any:
    """Returns a word; one that only a newer gateway knows stays a text."""
    return words(value) if value in list(words) else value


def _snake(name: str) -> str:
    """Converts camel case, which the API uses for locks, to snake case."""
    return re.sub(r"(?<=[a-z])([A-Z])", lambda found: f"_{found[1].lower()}", name)
