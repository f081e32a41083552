"""Rows of an outbox, and a relay's interface of the table that holds them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Protocol

from firmq.shared.domain.task import new_task_id
from firmq.worker.handlers.task_function import Submission

TABLE = "firmq_outbox"


class RowState(StrEnum):
    """Where a row is. A row that was sent is deleted in the next pass of a relay."""

    WAITING = "waiting"
    SENT = "sent"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRow:
    """A row to be written: `task` is the JSON of a task as POST /tasks takes it, `task_id` the id that it gets."""

    task_id: str
    type: str
    task: str
    traceparent: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Row:
    """A row to be sent."""

    position: int
    task_id: str
    task: str
    traceparent: str | None


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A row that the queue refused, and why."""

    task_id: str
    type: str
    created_at: datetime
    error: str


@dataclass(frozen=True, slots=True)
class Backlog:
    """How many rows there are, and when the oldest waiting one was written."""

    waiting: int
    refused: int
    oldest_at: datetime | None


class Rows(Protocol):
    """The rows within one transaction."""

    def waiting(self, after: int, limit: int) -> list[Row]:
        """Returns waiting rows after a position, in order; locked for this transaction where the table locks."""

    def sent(self, limit: int) -> list[str]:
        """Returns ids of sent rows, locked in the same way."""

    def mark_sent(self, task_ids: Sequence[str]) -> None: ...

    def mark_refused(self, task_id: str, error: str) -> None: ...

    def delete_sent(self, task_ids: Sequence[str]) -> None: ...


class Table(Protocol):
    """The table of an outbox."""

    @property
    def locks(self) -> bool:
        """Returns whether rows are locked while they are sent, so that several relays share the work.

        Without locks, rows are sent outside of transactions, and relays may send the same rows: that costs time only.
        """

    def transaction(self) -> AbstractContextManager[Rows]: ...

    def backlog(self) -> Backlog: ...

    def refused(self, limit: int) -> list[RefusedRow]: ...

    def retry_refused(self) -> int:
        """Makes refused rows waiting again; returns how many."""


def new_row(task: object, *args: Any, **kwargs: Any) -> NewRow:
    """Returns the row of a task: a handler (or the result of its `options`) with its arguments, or a `new_task`.

    Raises TypeError or ValueError for a value that is not a task, or for arguments that do not fit the handler.
    """
    value = task.new_task(*args, **kwargs) if isinstance(task, Submission) else _given(task, args, kwargs)
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    task_type = str(value["type"])
    return NewRow(
        task_id=new_task_id(),
        type=task_type[:100],
        task=text,
        traceparent=_traceparent(),
        created_at=datetime.now(UTC),
    )


def _given(task: object, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    if args or kwargs:
        raise TypeError("a new_task has its data already: give arguments to a handler only")
    if not isinstance(task, Mapping) or "type" not in task:
        raise TypeError(f"neither a handler nor made by new_task: {type(task).__name__}")
    if "item" in task:
        raise ValueError("a row of an outbox is not in a batch: leave `item` out")
    return task


def _traceparent() -> str | None:
    """Returns the trace that the calling program is in, if it uses OpenTelemetry."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or not trace.get_current_span().get_span_context().is_valid:
        return None
    from firmq.shared.observability.tracing import current_traceparent

    return current_traceparent()
