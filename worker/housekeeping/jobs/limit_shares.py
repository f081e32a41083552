"""limit_shares: moves slots and rates of limits between partitions, to where tasks wait.

Exact at every moment: a share is lowered before another one is raised, and raised at most by what all partitions
together leave of the limit. A partition counts with its share, or with the tasks that run there where these are more.
One that does not answer may still use all that it has: while one is away, only what was taken from the others in the
same run is given. Its term makes a process that was suspended unable to give what a later one has given to others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from firmq.shared.domain.limit_shares import WHOLE, Use, parts_for, slots_for
from firmq.shared.errors import StoreUnavailable
from firmq.shared.stores.limits import Limits, Share, ShareState
from firmq.worker.housekeeping.registry import RunResult

if TYPE_CHECKING:
    from firmq.shared.stores.locks import HeldLock

log = logging.getLogger(__name__)

T = TypeVar("T")
TURN = 1.0
"""Seconds for which the same partitions are served where there are more of them than slots or tokens."""
Named = tuple[str, str]
"""A limit: its name and its numbers."""


class LimitShares:
    """Shares out the limits of a system with several partitions."""

    name = "limit_shares"

    def __init__(
        self,
        partitions: Mapping[int, Limits],
        interval: timedelta,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`partitions` need clients with short time-outs: one that is away must not delay the others."""
        self.partitions = partitions
        self.interval = interval
        self.clock = clock
        self.away: set[int] = set()
        self._pool = ThreadPoolExecutor(max_workers=min(16, len(partitions)), thread_name_prefix="shares")

    def run(self, held: HeldLock) -> RunResult:
        states = self._everywhere(lambda limits: limits.read_shares(held.term), self.partitions)
        limits: dict[Named, dict[int, ShareState]] = {}
        for number, found in states.items():
            for state in found:
                limits.setdefault((state.name, state.numbers), {})[number] = state
        wanted = {named: self._wanted(named, known) for named, known in limits.items()}
        held.check()
        lowered = self._lower(held, limits, wanted)
        held.check()
        return RunResult(self._raise(held, limits, wanted, lowered))

    def _wanted(self, named: Named, known: Mapping[int, ShareState]) -> dict[int, Share]:
        """Returns the share that each partition should have."""
        concurrency, count, _, burst = named[1].split("|")
        use = {
            number: Use(slots=each.share.slots, part=each.share.part, running=each.running, waits=each.waits)
            for number, each in known.items()
        }
        turn = int(self.clock() / TURN)
        slots = slots_for(use, int(float(concurrency)), turn) if concurrency else dict.fromkeys(use, 0)
        parts = parts_for(use, float(burst or 1), turn) if count else dict.fromkeys(use, 0)
        return {number: Share(slots[number], parts[number]) for number in use}

    def _lower(
        self,
        held: HeldLock,
        limits: Mapping[Named, Mapping[int, ShareState]],
        wanted: Mapping[Named, Mapping[int, Share]],
    ) -> dict[Named, dict[int, Share]]:
        """Lowers the shares that are too large. Returns what each partition may use from here on."""
        usable = {
            named: {
                number: Share(max(state.share.slots, state.running), state.share.part)
                for number, state in known.items()
            }
            for named, known in limits.items()
        }
        changes: dict[int, dict[Named, Share]] = {}
        for named, known in limits.items():
            for number, state in known.items():
                lower = Share(*map(min, state.share, wanted[named][number]))
                if lower != state.share:
                    changes.setdefault(number, {})[named] = lower
        answers = self._set(held, changes)
        for number, found in answers.items():
            for named, slots in zip(changes[number], found, strict=True):
                if slots >= 0:
                    usable[named][number] = Share(slots, changes[number][named].part)
        return usable

    def _raise(
        self,
        held: HeldLock,
        limits: Mapping[Named, Mapping[int, ShareState]],
        wanted: Mapping[Named, Mapping[int, Share]],
        usable: Mapping[Named, Mapping[int, Share]],
    ) -> int:
        """Raises shares by what is left. Returns how many were raised."""
        changes: dict[int, dict[Named, Share]] = {}
        for named, known in limits.items():
            slots, part = self._left(named, known, usable[named])
            for number, state in known.items():
                aim, now = wanted[named][number], usable[named][number]
                more = Share(max(0, min(aim.slots - now.slots, slots)), max(0, min(aim.part - now.part, part)))
                slots, part = slots - more.slots, part - more.part
                own = Share(*map(min, state.share, aim))
                if any(more):
                    raised = Share(now.slots + more.slots if more.slots else own.slots, now.part + more.part)
                    changes.setdefault(number, {})[named] = raised
        self._set(held, changes)
        return sum(map(len, changes.values()))

    def _left(self, named: Named, known: Mapping[int, ShareState], usable: Mapping[int, Share]) -> Share:
        """Returns what may be given of a limit."""
        if self.away or len(known) < len(self.partitions):
            # What the others have is unknown; what was taken in this run is free for sure.
            taken = [
                sum(max(0, state.share[at] - usable[number][at]) for number, state in known.items()) for at in (0, 1)
            ]
            return Share(*taken)
        concurrency = named[1].split("|")[0]
        slots = int(float(concurrency)) if concurrency else 0
        return Share(
            max(0, slots - sum(each.slots for each in usable.values())),
            max(0, WHOLE - sum(each.part for each in usable.values())),
        )

    def _set(self, held: HeldLock, changes: Mapping[int, Mapping[Named, Share]]) -> dict[int, list[int]]:
        numbers = [number for number in changes if number not in self.away]
        chosen = {number: self.partitions[number] for number in numbers}
        by_limits = {id(self.partitions[number]): changes[number] for number in numbers}
        return self._everywhere(lambda limits: limits.set_shares(held.term, by_limits[id(limits)]), chosen)

    def _everywhere(self, call: Callable[[Limits], T], partitions: Mapping[int, Limits]) -> dict[int, T]:
        """Returns the answers of the partitions that give one; the others are away until the next run."""
        calls = {number: self._pool.submit(call, limits) for number, limits in partitions.items()}
        answers: dict[int, T] = {}
        for number, future in calls.items():
            try:
                answers[number] = future.result()
                self.away.discard(number)
            except StoreUnavailable as error:
                if number not in self.away:
                    log.warning("partition %d keeps its shares of limits: %s", number, error)
                self.away.add(number)
        return answers
