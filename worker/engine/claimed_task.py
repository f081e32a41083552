"""A task that this worker holds a lease on."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from firmq.shared.domain.traceparent import read_traceparent, trace_id
from firmq.worker.executors.ipc import Assignment
from firmq.worker.executors.recorder import LastLines

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
    logs: LastLines = field(default_factory=LastLines)
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
        """Returns `crashed_before`, but False after SETTLED seconds of running: most crashes happen early."""
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
        """Keeps the last `limit` bytes of log lines, in case the executor dies."""
        self.logs.add(line, limit)


_COUNTS = ("attempt", "failures", "crashes", "losses", "suspicions")
_LATEST_US = 9e15
"""The largest number that the scripts accept too."""


class ClaimReply(NamedTuple):
    """The answer of `claim.lua`."""

    now_us: bytes
    unreadable: Sequence[bytes]
    """The ids of corrupt records."""
    more: int
    """Whether it is worth claiming again at once."""
    tasks: Sequence[Sequence[Any]]
    again_in_us: int
    """When a rate allows the next start; -1 if no task waits for that."""
    fields: Sequence[bytes] = ()
    """The names of the tasks' fields (`_task_fields.lua`)."""


def read_claim(reply: ClaimReply, token: str, sent_at: float, received_us: int, lease: float) -> list[ClaimedTask]:
    """Returns the tasks in the answer of `claim.lua`."""
    offset, names = int(reply.now_us) - received_us, [each.decode() for each in reply.fields]
    claimed = []
    for row in reply.tasks:
        fields = dict(zip(names, row, strict=False))
        for name in _COUNTS:
            fields[name] = max(0, fields[name])  # only a damaged record has a negative one
        fields["enqueued_us"] = _moment_us(fields["enqueued_us"])
        fields["rq_job"] = (received_us, *fields["rq_job"]) if "rq_job" in fields else ()
        claimed.append(ClaimedTask(**fields, token=token, clock_offset_us=offset, lease_until=sent_at + lease))
    return claimed


def _moment_us(score: bytes) -> int:
    """Returns when it was enqueued, by the index; 0 where that is unknown or invalid."""
    moment = float(score) if score else 0.0
    return int(moment) if 0 < moment < _LATEST_US else 0
