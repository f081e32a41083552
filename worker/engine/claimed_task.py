"""A task that this worker holds a lease on."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, cast

from firmq.shared.domain.traceparent import read_traceparent, trace_id
from firmq.worker.executors.ipc import Assignment

SETTLED = 10.0
"""Seconds after which a running suspect blocks no other task: a task that kills a worker mostly does it soon, and other
tasks must not wait for hours for a long one."""


class Session(Protocol):
    """The session with the store that a task was claimed from."""

    number: int
    releases: list[ClaimedTask]

    def report(self, report: Any) -> None:
        """Adds the outcome of an attempt to the next sync."""


@dataclass(slots=True, eq=False)
class ClaimedTask:
    """A task as described by its claim, and its state in this worker.

    `clock_offset_us` added to this machine's monotonic clock gives Redis' time. The lease is trusted until
    `lease_until` on the monotonic clock, in seconds, counted from before the claim was sent.
    """

    id: bytes
    queue: bytes
    type: bytes
    data: bytes
    attempt: int
    failures: int
    crashes: int
    losses: int
    timeout: bytes
    retry: bytes
    meta: bytes
    enqueued_us: int
    token: str
    clock_offset_us: int
    lease_until: float
    number: int = 0
    limit: float = 0.0
    began_at: float = 0.0
    noted: bool = False
    progress: bytes = b""
    cancelled: bool = False
    lost: bool = False
    log_size: int = 0
    logs: deque[str] = field(default_factory=deque)
    parent_results: bytes = b""
    lane: str = ""
    """The suffix of the lane from which it was claimed."""
    concurrent: bool = False
    """Whether a concurrent executor runs it here."""
    suspicions: int = 0
    """How often an executor died that ran it beside others."""
    rq_job: tuple[Any, ...] = ()
    """The fields of the RQ job, if the task was made of one; input of `ClaimedJob`."""
    session: Session = field(default=None, repr=False)  # type: ignore[assignment]  # set by the session that claimed it
    """Where its lease is."""

    def give_back(self) -> None:
        """Returns it to its queue with the next sync, to run elsewhere at no cost."""
        self.session.releases.append(self)

    def lose(self) -> int:
        """Marks the lease as lost; returns 1 the first time, else 0, so that it is counted once."""
        result, self.lost = not self.lost, True
        return int(result)

    @property
    def queue_name(self) -> str:
        """Returns the name of its queue; a damaged record may hold bytes that are not UTF-8."""
        return self.queue.decode(errors="replace")

    @property
    def crashed_before(self) -> bool:
        """Returns whether a worker or executor died while it held this task, which may be the cause."""
        return self.losses > 0 or self.crashes > 0 or self.suspicions > 0

    def runs_isolated(self, now: float) -> bool:
        """Returns the same, unless it has run for so long that it does not matter: most crashes happen early."""
        return self.crashed_before and now < self.began_at + SETTLED

    def company(self, slots: int) -> int:
        """Returns how many tasks may run in its executor, with it: half as many after each death, so that one task that
        kills executors is found in few of them."""
        if not self.crashed_before:
            return slots
        return 1 if self.crashes else max(1, slots >> (self.suspicions + self.losses))

    def assignment(self) -> Assignment:
        """Returns the assignment for the executor."""
        return Assignment(
            self.number,
            self.id,
            self.type,
            self.data,
            self.attempt,
            self.failures,
            self.retry,
            self.meta,
            self.enqueued_us,
            self.limit,
            self.queue,
            self.parent_results,
            self.rq_job,
            self.token,
            self.session.number,
        )

    @property
    def name(self) -> str:
        """Returns the type as text; a corrupt one is escaped, not raised."""
        return self.type.decode(errors="replace")

    @property
    def own_limit(self) -> float | None:
        """Returns the time limit of its record; None for a missing or invalid one."""
        try:
            limit = float(self.timeout)
        except ValueError:
            return None
        return limit if 0 < limit < math.inf else None

    @property
    def about(self) -> dict[str, Any]:
        """Returns the metadata of the record; empty when corrupt."""
        try:
            found = json.loads(self.meta) if self.meta else {}
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def traceparent(self) -> str | None:
        """Returns the trace that the task belongs to."""
        return read_traceparent(self.meta)

    @property
    def log_fields(self) -> dict[str, Any]:
        """Returns the fields of a log line about this task."""
        return {"task_id": self.id.decode(), "attempt": self.attempt, "trace_id": trace_id(self.traceparent)}

    def log(self, line: str, limit: int) -> None:
        """Keeps the last `limit` characters of log lines, in case the executor dies."""
        self.logs.append(line)
        self.log_size += len(line)
        while self.log_size > limit:
            self.log_size -= len(self.logs.popleft())


_LATEST_US = 9e15
"""The largest number that the scripts accept too."""
_Row: TypeAlias = tuple[bytes, bytes, bytes, bytes, int, int, int, int, bytes, bytes, bytes]


def read_claim(reply: Sequence[Any], token: str, sent_at: float, received_us: int, lease: float) -> list[ClaimedTask]:
    """Returns the tasks in the answer of `claim.lua`."""
    offset = int(reply[0]) - received_us
    return [
        ClaimedTask(
            *cast("_Row", tuple(_as_count(value) if type(value) is int else value for value in row[:11])),
            _moment_us(row[11]),
            token,
            offset,
            sent_at + lease,
            parent_results=row[12],
            suspicions=_as_count(row[13]) if len(row) > 13 else 0,  # the gateway of the version before sends none
            rq_job=(received_us, *row[14]) if len(row) > 14 else (),
        )
        for row in reply[3]
    ]


def _as_count(number: int) -> int:
    """Returns a count of a record; 0 for a negative one, which only a damaged record has."""
    return max(0, number)


def _moment_us(score: bytes) -> int:
    """Returns when it was enqueued, by the index; 0 where that is unknown or invalid."""
    moment = float(score) if score else 0.0
    return int(moment) if 0 < moment < _LATEST_US else 0
