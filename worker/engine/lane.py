"""The two lanes of a worker: the tasks that it claims and holds for serial and for concurrent executors."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from firmq.worker.engine.crash_isolation import CrashIsolation
from firmq.worker.engine.prefetch import PrefetchWindow, Reserve
from firmq.worker.engine.queue_slots import QueueSlots
from firmq.worker.engine.redis_session import MOST_AT_ONCE, ClaimOrder
from firmq.worker.executors import ipc

if TYPE_CHECKING:
    from firmq.worker.engine.claimed_task import ClaimedTask
    from firmq.worker.engine.lane_claims import LaneClaims
    from firmq.worker.executors.pool import ExecutorPool
    from firmq.worker.executors.process import ExecutorProcess

SLOW = 0.1
"""Seconds of run time after which a task's executor gets no more tasks, and queued ones are reassigned."""


class Lane(ABC):
    """One kind of executors, and the claimed tasks that none of them has yet (`ready`).

    Its claims are those of a store (`StoreLink`).
    """

    kind: str
    suffix: str
    pause: float
    """Seconds without a claim after a claim of tasks for which the other lane had no room."""

    def __init__(self, pool: ExecutorPool, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.pool = pool
        self.monotonic = monotonic
        self.ready: deque[ClaimedTask] = deque()
        self.stays_parked = 0.0
        """Seconds for which a parked claim stays although there is no room. Each store has one: without the delay,
        a worker busy with one store's tasks would keep withdrawing and renewing the claims on the others."""
        self._had_room_at = 0.0
        self._paused_until = 0.0

    @property
    def executors(self) -> list[ExecutorProcess]:
        return [executor for executor in self.pool if executor.kind == self.kind]

    def serves(self, lane: str) -> bool:
        """Returns whether this is the lane of a queue, by its name with the suffix."""
        return lane.endswith("+") == (self.suffix == "+")

    # --- how much to claim ---

    def order(self, claims: LaneClaims, size: int) -> ClaimOrder:
        return ClaimOrder(claims, size)

    def claim_size(self, claims: LaneClaims, draining: bool, now: float) -> int | None:
        """Returns how many tasks to claim now; None for no claim."""
        if draining:
            return 0 if claims.unanswered else None  # its tasks are fetched and returned
        free = self.free()
        if free:
            self._had_room_at = now
        elif claims.parked and now >= self._had_room_at + self.stays_parked:
            return 0  # withdraws the parked claim: other workers start its tasks sooner
        claims.work_likely = claims.work_likely or self.was_freed()
        if not claims.work_likely and now < claims.next_token:
            return None
        capacity = min(free, MOST_AT_ONCE)
        return capacity if capacity and self.is_worth_a_claim(capacity) else None

    def on_claimed(self, claims: LaneClaims, now: float, size: int, shortest_wait: float) -> None:
        """Handles the answer to a claim."""
        again_in = claims.again_in
        if size:
            claims.next_token = float("inf") if again_in is None else now + max(shortest_wait, again_in)
        claims.work_likely = not claims.exhausted
        claims.awaiting_work = claims.parked

    def make_pause(self) -> None:
        """Claims nothing for a moment: it has to return what it gets."""
        self._paused_until = self.monotonic() + self.pause

    def was_freed(self) -> bool:
        """Returns whether a queue that was full after the last claim has a free slot now."""
        return False

    def free(self) -> int:
        """Returns how many more tasks it can hold; none in a pause."""
        return 0 if self.monotonic() < self._paused_until else max(0, self._room() - len(self.ready))

    @abstractmethod
    def _room(self) -> int:
        """Returns how many tasks it may hold beside those that its executors have."""

    @abstractmethod
    def on_ended(self, claimed: ClaimedTask, run_seconds: float) -> None:
        """Learns from a task that ended by itself how many to claim ahead."""

    @abstractmethod
    def is_worth_a_claim(self, capacity: int) -> bool:
        """Returns whether a claim of this size is worth its round trip."""

    @abstractmethod
    def all_busy(self) -> bool:
        """Returns whether every executor has more to do than it can begin."""

    # --- assigning ---

    @abstractmethod
    def hand_out(self, may_note: Callable[[ClaimedTask], bool]) -> None:
        """Assigns ready tasks to executors; `may_note` records the start of a suspect, and returns whether it may."""

    @abstractmethod
    def is_blocked(self, now: float) -> bool:
        """Returns whether no executor will take a task soon, so that other workers should."""


class SerialLane(Lane):
    """Tasks that run one at a time in a process, some of them queued behind short ones."""

    kind, suffix, pause = ipc.SERIAL, "", 0.02

    def __init__(
        self,
        pool: ExecutorPool,
        limits: dict[str, int],
        max_crashes: int,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`limits` is how many executors each of some queues may use; none of their tasks is claimed ahead."""
        super().__init__(pool, monotonic)
        self.prefetch = PrefetchWindow()
        self.slots = QueueSlots(limits, pool, self.ready)
        self.crash_isolation = CrashIsolation(pool, max_crashes, monotonic)

    def order(self, claims: LaneClaims, size: int) -> ClaimOrder:
        return ClaimOrder(claims, size, self.slots.free())

    def was_freed(self) -> bool:
        return self.slots.freed()

    def on_claimed(self, claims: LaneClaims, now: float, size: int, shortest_wait: float) -> None:
        super().on_claimed(claims, now, size, shortest_wait)
        self.slots.update()

    def on_ended(self, claimed: ClaimedTask, run_seconds: float) -> None:
        if claimed.queue_name not in self.slots.limits:
            self.prefetch.learn(run_seconds)

    def _room(self) -> int:
        window = self.prefetch.window()
        return sum(max(0, self._capacity(executor, window)) for executor in self.executors)

    def is_worth_a_claim(self, capacity: int) -> bool:
        # Under load a claim is worth its round trip only when it fills a good part of the capacity.
        return not self.all_busy() or capacity >= self.prefetch.window() * len(self.executors) // 3

    def all_busy(self) -> bool:
        return all(len(executor.assigned) > 1 for executor in self.executors if executor.ready)

    def _capacity(self, executor: ExecutorProcess, window: int) -> int:
        if executor.idle:
            return window
        if not executor.ready or executor.retiring or self.monotonic() - executor.turn_began_at > SLOW:
            return 0
        return 0 if next(iter(executor.assigned.values())).crashed_before else window - len(executor.assigned)

    def hand_out(self, may_note: Callable[[ClaimedTask], bool]) -> None:
        """Assigns tasks, to the emptiest executor first."""
        window = self.prefetch.window()
        one_waits = self.crash_isolation.one_waits(self.ready)
        for executor in sorted(self.executors, key=lambda each: len(each.assigned)):
            share = self._share(executor, self._capacity(executor, window), one_waits, may_note)
            if share:
                executor.assign(share)

    def _share(
        self, executor: ExecutorProcess, most: int, one_waits: bool, may_note: Callable[[ClaimedTask], bool]
    ) -> list[ClaimedTask]:
        """Returns the tasks for one executor: a suspect alone and only if idle, other tasks together."""
        share: list[ClaimedTask] = []
        for _ in range(len(self.ready)):
            if len(share) >= most:
                break
            claimed = self.ready.popleft()
            if not self.slots.may_start(claimed, share):
                self.ready.append(claimed)
            elif not claimed.crashed_before:
                share.append(claimed)
            elif share or not executor.idle or not self.crash_isolation.may_start(claimed, one_waits):
                self.ready.append(claimed)
            elif may_note(claimed):
                return [claimed]
        return share

    def is_blocked(self, now: float) -> bool:
        executors = self.executors
        return all(executor.assigned and now - executor.turn_began_at > SLOW for executor in executors)


class ConcurrentLane(Lane):
    """Tasks that mostly wait, of which an executor runs many at a time."""

    kind, suffix, pause = ipc.CONCURRENT, "+", 0.25

    def __init__(self, pool: ExecutorPool, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__(pool, monotonic)
        self._ended = Reserve(monotonic)

    def on_ended(self, claimed: ClaimedTask, run_seconds: float) -> None:
        self._ended.learn()

    @property
    def _slots(self) -> int:
        """Returns the slots of all executors, and one where there is none.

        A worker without handlers for this lane claims from it too: its version of a type may run one at a time.
        """
        return sum(executor.slots for executor in self._staying) or 1

    @property
    def _staying(self) -> list[ExecutorProcess]:
        return [executor for executor in self.executors if not executor.retiring]

    def _room(self) -> int:
        return self._slots + self._reserve() - sum(len(executor.assigned) for executor in self._staying)

    def _reserve(self) -> int:
        """Returns how many tasks to claim ahead: a freed slot need not wait for a claim."""
        return min(self._slots // 2, self._ended.size())

    def is_worth_a_claim(self, capacity: int) -> bool:
        return not self.all_busy() or capacity >= max(1, self._reserve() // 2)

    def all_busy(self) -> bool:
        return self.free() <= self._reserve()

    def hand_out(self, may_note: Callable[[ClaimedTask], bool]) -> None:
        """Fills the slots evenly; suspects come first, to where nothing else runs."""
        first = [claimed for claimed in self.ready if claimed.crashed_before]
        if first:
            others = [claimed for claimed in self.ready if not claimed.crashed_before]
            self.ready.clear()
            self.ready += [*first, *others]
        self._fill(0, may_note)
        # Suspects need not wait for an executor that no other task uses: one more is started for them.
        self.pool.isolating = any(each.crashed_before for each in self.ready)
        if self.ready and not self.pool.isolating:
            self._fill(self._reserve() // max(1, len(self._staying)), may_note)

    def _fill(self, ahead: int, may_note: Callable[[ClaimedTask], bool]) -> None:
        """Assigns to each executor the tasks that it can begin at once, and so many `ahead`."""
        executors = sorted(self.executors, key=lambda each: each.room(ahead))
        left = sum(executor.room(ahead) for executor in executors)
        for executor in executors:
            room = executor.room(ahead)
            most = -(-len(self.ready) * room // left) if room else 0
            left -= room
            if most and (share := self._share(executor, executor.slots + ahead, most, may_note)):
                executor.assign(share)

    def _share(
        self, executor: ExecutorProcess, slots: int, most: int, may_note: Callable[[ClaimedTask], bool]
    ) -> list[ClaimedTask]:
        """Returns the tasks for one executor. A suspect runs beside other suspects only, and beside fewer each time."""
        now = self.monotonic()
        isolated = [each for each in executor.assigned.values() if each.runs_isolated(now)]
        room = min((each.company(executor.slots) for each in isolated), default=slots)
        share: list[ClaimedTask] = []
        for _ in range(len(self.ready)):
            held = len(executor.assigned) + len(share)
            if held >= room or len(share) >= most:
                break
            claimed = self.ready.popleft()
            alone = bool(isolated) or any(each.crashed_before for each in share[:1])
            if (held and claimed.crashed_before != alone) or held >= claimed.company(slots):
                self.ready.append(claimed)
            elif not claimed.crashed_before or may_note(claimed):
                room = min(room, claimed.company(slots))
                share.append(claimed)
        return share

    def is_blocked(self, now: float) -> bool:
        return False


class Lanes:
    """Both lanes, and which of them a task belongs to."""

    def __init__(self, serial: SerialLane, concurrent: ConcurrentLane) -> None:
        self.serial = serial
        self.concurrent = concurrent

    def __iter__(self) -> Iterator[Lane]:
        return iter((self.serial, self.concurrent))

    def of(self, claimed: ClaimedTask) -> Lane:
        return self.concurrent if claimed.concurrent else self.serial

    def add(self, claimed: ClaimedTask) -> bool:
        """Adds a claimed task to the lane that runs it here; returns False when that has no room.

        It may differ from the lane of its queue entry: after an update that made a handler `async`, with other
        settings than the worker that published the type, or for a suspect that has to run alone.
        """
        lane = self.of(claimed)
        if claimed.lane == lane.suffix or claimed.crashed_before or lane.free():
            lane.ready.append(claimed)
            return True
        for other in self:
            if other is not lane:
                other.make_pause()
        return False

    def ready(self) -> list[ClaimedTask]:
        """Returns the tasks that no executor has yet."""
        return [*self.serial.ready, *self.concurrent.ready]

    def remove(self, claimed: ClaimedTask) -> bool:
        """Removes a task that no executor has; returns False when there is no such task."""
        waiting = self.of(claimed).ready
        if claimed not in waiting:
            return False
        waiting.remove(claimed)
        return True
