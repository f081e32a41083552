"""dependencies: tells other partitions how tasks ended that tasks there depend on.

Delivers the notices that the steps wrote which ended the tasks, and looks up parents whose notice may have been lost.
Each partition has this job. What concerns a partition that does not answer waits until it does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from taskqueue.shared.errors import StoreUnavailable
from taskqueue.shared.stores.remote_parents import RemoteParents, by_partition, look_up
from taskqueue.worker.housekeeping.registry import RunResult, until_done

if TYPE_CHECKING:
    from taskqueue.shared.stores.locks import HeldLock

log = logging.getLogger(__name__)

MOST = 100
"""Notices, or look-ups, of one step."""
ROUNDS = 20
LOOK_UP_EVERY = timedelta(minutes=1)


class Dependencies:
    """The notices of one partition to the others."""

    name = "dependencies"

    def __init__(
        self,
        own: int,
        partitions: Mapping[int, RemoteParents],
        locate: Callable[[str], int | None],
        interval: timedelta,
        look_up_every: timedelta = LOOK_UP_EVERY,
    ) -> None:
        """`own` is the number of this partition; `locate` returns that of a task."""
        self.own = own
        self.partitions = partitions
        self.locate = locate
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
                    look_up(notices, own, self.partitions[number], number)
                except StoreUnavailable:
                    away.add(number)
                    return 0
                own.settle(number, notices)
            return len(notices)

        return until_done(held, deliver, MOST, ROUNDS).done

    def _look_up(self, away: set[int]) -> None:
        own = self.partitions[self.own]
        places = {each: self.locate(each) for each in own.due(self.look_up_every, MOST)}
        known = {task_id: number for task_id, number in places.items() if number in self.partitions}
        for number, ids in by_partition({each: number for each, number in known.items() if number is not None}).items():
            if number == self.own or number in away:
                continue
            try:
                look_up(ids, self.partitions[number], own, self.own)
            except StoreUnavailable:
                away.add(number)
