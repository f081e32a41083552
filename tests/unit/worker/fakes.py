"""Stand-ins for what the worker's loop works with: no process, no Redis, and time that passes only when told."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from shared.stores.task_types import TaskType
from worker.engine.claimed_task import ClaimedTask
from worker.engine.redis_session import Report, SyncResult


class FakeTime:
    """A monotonic clock that stands still until it is advanced."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class FakeSelector:
    """Never has an event; waiting makes time pass."""

    def __init__(self, time: FakeTime) -> None:
        self.time = time
        self.waits: list[float] = []

    def register(self, *about: object) -> None: ...

    def unregister(self, *about: object) -> None: ...

    def select(self, timeout: float) -> list[Any]:
        self.waits.append(timeout)
        self.time.now += timeout
        return []


class FakeExecutor:
    """An executor that begins a task when the test says so."""

    def __init__(self, time: FakeTime, pid: int = 1) -> None:
        self.time = time
        self.pid = pid
        self.assigned: dict[int, ClaimedTask] = {}
        self.ready, self.retiring, self.dead = True, False, False
        self.closed_to_input = False
        self.closed_pipe_at: float | None = None
        self.killed_because: str | None = None
        self.stop_by: float | None = None
        self.began_at = 0.0
        self.begun = False
        self.bytes_used = 0
        self.late = False
        self.events: list[Any] = []
        """Frames, or an exception in place of one that cannot be read."""
        self.signals: list[int] = []
        self.told_to_end = False

    @property
    def idle(self) -> bool:
        return self.ready and not self.retiring and not self.assigned

    def assign(self, tasks: Sequence[ClaimedTask]) -> None:
        self.began_at = self.began_at if self.assigned else self.time()
        self.assigned |= {task.number: task for task in tasks}

    def begin(self) -> ClaimedTask:
        """The executor reads the start token of its first task."""
        self.begun, self.began_at = True, self.time()
        return next(iter(self.assigned.values()))

    def running(self) -> ClaimedTask | None:
        return next(iter(self.assigned.values()), None) if self.begun else None

    def take_back(self) -> list[ClaimedTask]:
        return [self.assigned.pop(number) for number in list(self.assigned)[int(self.begun) :]]

    def finished(self, number: int) -> ClaimedTask | None:
        self.begun = False
        return self.assigned.pop(number, None)

    def read(self) -> Iterator[tuple[Any, ...]]:
        while self.events:
            event = self.events.pop(0)
            if isinstance(event, Exception):
                raise event
            yield event

    def flush(self) -> bool:
        return True

    def kill(self, because: str | None = None) -> None:
        self.killed_because = self.killed_because or because

    def signal(self, number: int) -> None:
        self.signals.append(number)

    def exceeds(self, limit: int, now: float) -> bool:
        return self.bytes_used > limit

    def is_dead(self) -> bool:
        return self.dead

    def was_ended_by_watchdog(self) -> bool:
        return False

    def cause_of_death(self) -> str:
        return "the process was killed by signal 11 (SIGSEGV)"

    def retire(self) -> None:
        self.retiring = True

    def shutdown(self) -> None:
        self.told_to_end = True

    def overdue(self, now: float) -> bool:
        return self.told_to_end and self.late


class FakePool:
    """Executors that were started before."""

    watchdog = None
    type_set = None

    def __init__(self, *members: FakeExecutor) -> None:
        self.members = list(members)
        self.types: Mapping[str, TaskType] = {}
        self.spawning = True
        self.lost_members: list[FakeExecutor] = []

    def __iter__(self) -> Iterator[FakeExecutor]:
        return iter(self.members)

    @property
    def ready(self) -> bool:
        return any(member.ready for member in self.members)

    def lost(self, member: FakeExecutor) -> None:
        self.members.remove(member)
        self.lost_members.append(member)

    def spawn_missing(self) -> None: ...

    def retire_spent(self) -> None: ...


class FakeSession:
    """A conversation with a Redis that answers what the test puts into `answers`."""

    def __init__(self, time: FakeTime, lease: float = 30.0) -> None:
        self.time = time
        self.lease, self.margin = lease, 3.0
        self.reports: list[Report] = []
        self.releases: list[ClaimedTask] = []
        self.gathering_since = 0.0
        self.claim_unanswered = self.claim_parked = False
        self.answers: deque[SyncResult | Exception] = deque()
        self.dispatched: dict[bytes, SyncResult] = {}
        self.sizes: list[int | None] = []
        self.extended: list[list[ClaimedTask]] = []
        self.sent: list[Report] = []
        self.returned: list[ClaimedTask] = []
        self.notified: list[str] = []
        self.noted: list[ClaimedTask] = []
        self.lease_holds = True
        self.one_by_one = 0

    def report(self, report: Report) -> None:
        self.gathering_since = self.gathering_since if self.reports else self.time()
        self.reports.append(report)

    def sync(self, size: int | None, extending: Sequence[ClaimedTask], slots: Mapping[str, int]) -> SyncResult:
        """Writes everything and claims; a claim without an answer in `answers` finds nothing and is parked."""
        self.sizes.append(size)
        answer = self.answers.popleft() if self.answers else SyncResult()
        if isinstance(answer, Exception):
            self.claim_unanswered = self.claim_unanswered or size is not None
            raise answer
        if size is not None:
            self.claim_parked = self.claim_unanswered = bool(size) and len(answer.claimed) < size
        self.extended.append(list(extending))
        answer.written += self.reports
        self.sent += self.reports
        self.returned += self.releases
        self.reports, self.releases = [], []
        return answer

    def accept(self, message: bytes) -> SyncResult:
        return self.dispatched[message]

    def report_one_by_one(self, result: SyncResult) -> None:
        self.one_by_one += 1
        result.written += self.reports
        self.reports = []

    def extend(self, extending: Sequence[ClaimedTask], result: SyncResult) -> None:
        self.extended.append(list(extending))

    def note_begun(self, claimed: ClaimedTask) -> bool:
        self.noted.append(claimed)
        return self.lease_holds

    def notify_workers(self, queue: str) -> None:
        self.notified.append(queue)


class FakeNotifications:
    """Notifications that the test puts into `received`."""

    def __init__(self) -> None:
        self.received: deque[tuple[str, bytes | None]] = deque()
        self.listening: list[bool] = []

    def listen(self, for_work: bool, full: Collection[str]) -> None:
        self.listening.append(for_work)


class FakeSpans:
    """Takes the place of the forwarder of spans."""

    def __init__(self) -> None:
        self.frames: list[Any] = []
        self.crashes: list[bytes] = []

    def forward(self, frame: list[Any]) -> None:
        self.frames.append(frame)

    def crashed(self, claimed: ClaimedTask, began_at: float, report: Report) -> None:
        self.crashes.append(claimed.id)


def claimed(name: str = "a", time: FakeTime | None = None, **about: Any) -> ClaimedTask:
    """A task that was claimed just now, with a lease of thirty seconds."""
    fields: dict[str, Any] = {
        "id": name.encode(),
        "queue": b"normal",
        "type": b"mail",
        "data": b"",
        "attempt": 1,
        "failures": 0,
        "crashes": 0,
        "losses": 0,
        "timeout": b"",
        "retry": b"",
        "meta": b"",
        "enqueued_us": 5,
        "token": "t",
        "clock_offset_us": 0,
        "lease_until": (time() if time else 1000.0) + 30.0,
    }
    return ClaimedTask(**{**fields, **about})


def numbered(tasks: Iterable[ClaimedTask]) -> list[ClaimedTask]:
    """Gives tasks the numbers that the loop gives them."""
    found = list(tasks)
    for number, task in enumerate(found, 1):
        task.number, task.limit = number, 60.0
    return found


def close(*fds: int) -> None:
    for fd in fds:
        os.close(fd)
