"""dependencies: tells other partitions how tasks ended that tasks there depend on.

Delivers the notices that the steps wrote which ended the tasks, and looks up parents whose notice may have been lost.
Each partition has this job. What concerns a partition that does not answer waits until it does.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from firmq.shared.domain.clock import to_us
from firmq.shared.domain.partition import partition_of_id
from firmq.shared.errors import StoreUnavailable
from firmq.shared.stores.remote_parents import RemoteParents, Unheard, by_partition, look_up
from firmq.worker.housekeeping.registry import RunResult, until_done

if TYPE_CHECKING:
    from firmq.shared.stores.locks import HeldLock

log = logging.getLogger(__name__)

MOST = 100
"""Notices, or look-ups, of one step."""
ROUNDS = 20
LOOK_UP_EVERY = timedelta(minutes=1)
REMOVED_AFTER = timedelta(hours=1)
"""How long nothing is heard of a parent in a partition that is not configured until it counts as removed."""
UNKNOWN = -1


class Dependencies:
    """The notices of one partition to the others."""

    name = "dependencies"

    def __init__(
        self,
        own: int,
        partitions: Mapping[int, RemoteParents],
        interval: timedelta,
        look_up_every: timedelta = LOOK_UP_EVERY,
    ) -> None:
        """`own` is the number of this partition."""
        self.own = own
        self.partitions = partitions
        self.interval = interval
        self.look_up_every = look_up_every
        self.away: set[int] = set()

    def run(self, held: HeldLock) -> RunResult:
        away: set[int] = set()
        delivered = sum(self._deliver_all(number, held, away) for number in self.partitions if number != self.own)
        held.check()
        self._look_up(away)
        for number in away - self.away:
            log.warning("partition %d does not answer; tasks there wait for the ends of their parents here", number)
        self.away = away
        return RunResult(delivered)

    def _deliver_all(self, number: int, held: HeldLock, away: set[int]) -> int:
        own = self.partitions[self.own]

        def deliver() -> int:
            notices = own.notices(number, MOST)
            if notices and number not in away:
                try:
                    look_up(list(notices), own, self.partitions[number])
                except StoreUnavailable:
                    away.add(number)
                    return 0
                own.settle(number, notices)
            return len(notices)

        return until_done(held, deliver, MOST, ROUNDS).done

    def _look_up(self, away: set[int]) -> None:
        own = self.partitions[self.own]
        places: dict[str, int] = {}
        gone: list[str] = []
        for each in own.due(self.look_up_every, MOST):
            number = self._partition_of(each, away)
            if number is None:
                gone.append(each.task_id)
            elif number != UNKNOWN:
                places[each.task_id] = number
        for number, ids in by_partition(places).items():
            try:
                if number not in away:
                    look_up(ids, self.partitions[number], own)
            except StoreUnavailable:
                away.add(number)
        if gone:
            own.note_gone(gone)

    def _partition_of(self, parent: Unheard, away: set[int]) -> int | None:
        """Returns the partition that has a parent, or None for one that is gone.

        Returns UNKNOWN while it may be in a partition that is away, or in one that this process does not know yet.
        """
        number = partition_of_id(parent.task_id) if parent.partition is None else parent.partition
        if number == self.own:
            return None
        if number in self.partitions:
            return number
        if number is not None:
            unheard = self.partitions[self.own].scripts.now_us() - parent.since
            return None if unheard > to_us(REMOVED_AFTER) else UNKNOWN
        for number, partition in self.partitions.items():
            try:
                if number not in away and partition.has(parent.task_id):
                    return None if number == self.own else number  # one that is here needs no copy
            except StoreUnavailable:
                away.add(number)
        return UNKNOWN if away else None
