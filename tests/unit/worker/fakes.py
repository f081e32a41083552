"""Stand-ins for what the worker's loop works with: no process, no Redis, and time that passes only when told."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from firmq.shared.stores.task_types import TaskType
from firmq.worker.engine.claimed_task import ClaimedTask
from firmq.worker.engine.lane import ConcurrentLane, Lanes, SerialLane
from firmq.worker.engine.lane_claims import LaneClaims
from firmq.worker.engine.link import StoreLink
from firmq.worker.engine.redis_session import ClaimOrder, Report, SyncResult
from firmq.worker.executors import ipc
from tests.support.queue_names import claimed_queues


class FakeTime:
    """A monotonic clock that stands still until it is advanced."""

    session: Any = None
    """The session of the tasks that are claimed at this time."""

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

    def __init__(self, time: FakeTime, pid: int = 1, slots: int = 0) -> None:
        """A concurrent one with `slots`."""
        self.time = time
        self.pid = pid
        self.kind, self.slots = (ipc.CONCURRENT, slots) if slots else (ipc.SERIAL, 1)
        self.concurrent = bool(slots)
        self.assigned: dict[int, ClaimedTask] = {}
        self.ready, self.retiring, self.dead = True, False, False
        self.closed_to_input = False
        self.closed_pipe_at: float | None = None
        self.killed_because: str | None = None
        self.stop_by: float | None = None
        self.retire_by: float | None = None
        self.generation = 0
        self.turn_began_at = 0.0
        self.has_begun = False
        self.spent, self.done = False, 0
        self.last_event_at, self.culprits = time(), set[int]()
        self.pinged_at: float | None = None
        self.commands: list[tuple[str, int]] = []
        self.bytes_used = 0
        self.late = False
        self.events: list[Any] = []
        """Frames, or an exception in place of one that cannot be read."""
        self.signals: list[int] = []
        self.told_to_end = False

    @property
    def idle(self) -> bool:
        return self.ready and not self.retiring and not self.assigned

    def room(self, ahead: int) -> int:
        return max(0, self.slots + ahead - len(self.assigned)) if self.ready and not self.retiring else 0

    def full_since(self) -> float:
        waiting = list(self.assigned.values())[self._running() :]
        return waiting[0].began_at if waiting and self.has_begun else float("inf")

    def assign(self, tasks: Sequence[ClaimedTask]) -> None:
        self.turn_began_at = self.turn_began_at if self.assigned else self.time()
        for task in tasks:
            task.began_at = self.time()
        self.assigned |= {task.number: task for task in tasks}

    def begin(self) -> ClaimedTask:
        """The executor reads the start token of its first task, a concurrent one those of all."""
        self.has_begun, self.turn_began_at = True, self.time()
        return next(iter(self.assigned.values()))

    def begun(self) -> list[ClaimedTask]:
        return list(self.assigned.values())[: self._running()]

    def began_at(self, claimed: ClaimedTask) -> float:
        return claimed.began_at if self.concurrent else self.turn_began_at

    def take_back(self) -> list[ClaimedTask]:
        return [self.assigned.pop(number) for number in list(self.assigned)[self._running() :]]

    def _running(self) -> int:
        return int(self.has_begun) * self.slots

    def finished(self, number: int) -> ClaimedTask | None:
        self.has_begun = self.has_begun and self.concurrent
        return self.assigned.pop(number, None)

    def command(self, name: str, number: int = 0) -> None:
        self.commands.append((name, number))

    def read(self) -> Iterator[tuple[Any, ...]]:
        while self.events:
            event = self.events.pop(0)
            if isinstance(event, Exception):
                raise event
            self.last_event_at, self.pinged_at = self.time(), None
            yield event

    def flush(self) -> bool:
        return True

    def kill(self, because: str | None = None) -> None:
        self.killed_because = self.killed_because or because

    def signal(self, number: int) -> None:
        self.signals.append(number)

    def memory_bytes(self) -> int:
        return self.bytes_used

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
        self.settings = SimpleNamespace(concurrent_executors=1, slots=0)
        self.blocking: dict[str, str] = {}
        self.isolating = self.concurrent_wanted = False
        self.heartbeat_due = threading.Event()
        self.lost_members: list[FakeExecutor] = []

    def __iter__(self) -> Iterator[FakeExecutor]:
        return iter(self.members)

    @property
    def ready(self) -> bool:
        return any(member.ready for member in self.members)

    def is_concurrent(self, task_type: str) -> bool:
        known = self.types.get(task_type)
        return bool(known and known.concurrent and task_type not in self.blocking)

    def lost(self, member: FakeExecutor) -> None:
        self.members.remove(member)
        self.lost_members.append(member)

    def spawn_missing(self) -> None: ...

    def retire_spent(self) -> None: ...

    def replace(self, member: FakeExecutor) -> None:
        member.retire()


@dataclass
class Found:
    """What a sync brings."""

    result: SyncResult
    again_in: float | None = None
    ask_again: bool = False


class FakeSession:
    """A conversation with a Redis that answers what the test puts into `answers`."""

    def __init__(self, time: FakeTime, lease: float = 30.0) -> None:
        self.time = time
        time.session = self
        self.number, self.lease, self.margin = 0, lease, 3.0
        self.reports: list[Report] = []
        self.releases: list[ClaimedTask] = []
        self.gathering_since = 0.0
        self.answers: deque[Found | Exception] = deque()
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

    def sync(self, orders: Sequence[ClaimOrder], extending: Sequence[ClaimedTask]) -> SyncResult:
        """Writes everything and claims; a claim without an answer in `answers` finds nothing and is parked."""
        serial = next((each for each in orders if not each.claims.suffix), None)
        self.sizes.append(serial.size if serial else None)
        found = self.answers.popleft() if self.answers else Found(SyncResult())
        if isinstance(found, Exception):
            for each in orders:
                each.claims.unanswered = True
            raise found
        answer = found.result
        self._adopt(answer)
        for each in orders:
            each.claims.parked = each.claims.exhausted = each.claims.unanswered = each.size > 0
            each.claims.asked_at = self.time()
        if serial:
            parked = len(answer.claimed) < serial.size and not found.ask_again
            serial.claims.parked = serial.claims.exhausted = serial.claims.unanswered = parked
            serial.claims.again_in = found.again_in
        self.extended.append(list(extending))
        answer.written += self.reports
        self.sent += self.reports
        self.returned += self.releases
        self.reports, self.releases = [], []
        return answer

    def accept(self, message: bytes, lanes: Sequence[LaneClaims]) -> SyncResult:
        self._adopt(self.dispatched[message])
        return self.dispatched[message]

    def _adopt(self, result: SyncResult) -> None:
        for each in result.claimed:
            each.session = cast("Any", self)

    def report_one_by_one(self, result: SyncResult) -> None:
        self.one_by_one += 1
        result.written += self.reports
        self.reports = []

    def extend(self, extending: Sequence[ClaimedTask], result: SyncResult) -> None:
        self.extended.append(list(extending))

    def note_begun(self, claimed: ClaimedTask) -> bool:
        self.noted.append(claimed)
        return self.lease_holds

    def notify_workers(self, lane: str, *, known: bool) -> None:
        self.notified.append(lane)


class FakeNotifications:
    """Notifications that the test puts into `received`."""

    def __init__(self) -> None:
        self.received: deque[tuple[str, bytes | None]] = deque()
        self.listening: list[bool] = []

    def listen(self, suffixes: Sequence[str], full: Collection[str]) -> None:
        self.listening.append("" in suffixes)


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
        "session": time.session if time else SimpleNamespace(number=0, releases=[]),
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


def lanes_of(pool: FakePool, time: FakeTime, limits: Mapping[str, int] | None = None, max_crashes: int = 3) -> Lanes:
    """The lanes of a worker with these executors and one queue."""
    members: Any = pool
    return Lanes(SerialLane(members, dict(limits or {}), max_crashes, time), ConcurrentLane(members, time))


def link_to(session: FakeSession, notifications: FakeNotifications, number: int = 0) -> StoreLink:
    """A link to a partition, for a worker with one queue of each priority."""
    parts: tuple[Any, Any] = (session, notifications)
    queues = claimed_queues({"critical": 1, "high": 1, "normal": 1, "low": 1})
    claims = {suffix: LaneClaims("w", queues, suffix) for suffix in ("", "+")}
    return StoreLink(parts[0], claims, parts[1], number)
