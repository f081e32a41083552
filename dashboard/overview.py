"""One snapshot of the whole system, shared by all open pages of this process.

While pages are open, one thread refreshes it every two seconds; it pauses when no page has been requested for a while.
So the load on Redis does not depend on the number of open tabs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from redis.exceptions import ResponseError

from dashboard.cache import TTLCache
from dashboard.metrics import Metrics
from shared.domain.clock import instant
from shared.domain.decode import whole_or_none
from shared.domain.task import TaskState, TaskSummary
from shared.errors import TaskQueueError
from shared.redis import keys
from shared.redis.client import text, translated
from shared.redis.quarantine import quarantining
from shared.stores.locks import LEADER, LockAdmin, LockInfo
from shared.stores.queues import QueueInfo, Queues
from shared.stores.task_types import TaskTypes, absence
from shared.stores.tasks import Filter, Records
from shared.stores.workers import WorkerInfo, Workers

if TYPE_CHECKING:
    from redis import Redis

log = logging.getLogger(__name__)

EVERY = 2.0
UNWATCHED = 30.0
"""Seconds without a request after which refreshing pauses."""
MINUTES = 60
RECENT = 12
_SETTLED = 2
"""Minutes after which the counts of a minute are final, so that they are read once."""
_INFO_EVERY = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of the system at one moment of Redis' clock."""

    at: datetime
    read_at: float
    """The same moment on this process's monotonic clock, in seconds."""
    counts: Mapping[TaskState, int]
    queues: Sequence[QueueInfo]
    workers: Sequence[WorkerInfo]
    lost_workers: Sequence[WorkerInfo]
    """Workers lost in the last week, the latest first."""
    unreadable_workers: Sequence[str]
    """Names of live workers whose record is corrupt."""
    recent: Sequence[TaskSummary]
    types: Mapping[str, str]
    """The registered types, each with a sentence about its absence; empty while a live worker has the type."""
    minutes: Mapping[int, Mapping[str, int]]
    """Counts of events in each of the last sixty minutes, the oldest first."""
    info: Mapping[str, Any]
    overdue: timedelta
    """How late the most overdue scheduled or retrying task is."""
    unreaped: timedelta
    """How long ago the oldest ended lease that is still to be recovered ended."""
    damaged: int = 0
    """Keys moved to quarantine in the last week because they held a value of the wrong type."""
    leader: LockInfo | None = None
    """The lock of the leading housekeeper; free if housekeepers work without locks."""

    @property
    def alive(self) -> int:
        """The number of live workers that are not silent, including those with a corrupt record."""
        return sum(each.state != "silent" for each in self.workers) + len(self.unreadable_workers)

    def now(self) -> datetime:
        """Returns the current time of Redis' clock, extrapolated with this process's clock."""
        return self.at + timedelta(seconds=time.monotonic() - self.read_at)

    def age(self) -> float:
        return time.monotonic() - self.read_at

    def total(self, what: str, minutes: int = MINUTES) -> int:
        """Returns the number of such events in the last minutes."""
        latest = list(self.minutes.values())[-minutes:]
        return sum(minute.get(what, 0) for minute in latest)


class OverviewCache:
    """Holds the snapshot and refreshes it."""

    def __init__(
        self, redis: Redis, queues: Queues, records: Records, workers: Workers, types: TaskTypes, metrics: Metrics
    ) -> None:
        self.redis = redis
        self.queues = queues
        self.records = records
        self.workers = workers
        self.types = types
        self.metrics = metrics
        self.locks = LockAdmin(records.scripts)
        self.cache = TTLCache()
        self.current: Snapshot | None = None
        self.looked_at = 0.0
        self.settled: dict[int, Mapping[str, int]] = {}
        self.info: Mapping[str, Any] = {}
        self.info_at = -_INFO_EVERY

    def look(self) -> Snapshot:
        """Returns a snapshot that is at most a few seconds old. Raises StoreUnavailable."""
        self.looked_at = time.monotonic()
        found = self.current
        if found is not None and found.age() < EVERY * 1.5:
            return found
        return self.cache.get("snapshot", self._renew)

    def forget(self) -> None:
        """Drops the snapshot after a change, so that the next page shows the change."""
        self.cache.clear()
        self.current = None

    def keep_fresh(self) -> None:
        """Refreshes the snapshot if it is due and a page was requested recently."""
        if time.monotonic() - self.looked_at > UNWATCHED:
            return
        if self.current is not None and self.current.age() < EVERY:
            return
        try:
            self.cache.get("snapshot", self._renew)
        except TaskQueueError as error:
            log.debug("snapshot failed: %s", error)

    def _renew(self) -> Snapshot:
        self.current = self._read()
        return self.current

    def _read(self) -> Snapshot:
        with self.metrics.refreshes.time(), self.metrics.refresh_failures.count_exceptions():
            return self._look_around()

    def _look_around(self) -> Snapshot:
        with translated():
            seconds, us = self.redis.time()
            now_us = seconds * 1_000_000 + us
            overdue, unreaped = self._lateness(now_us)
            minutes = self._minutes(seconds // 60)
            damaged = int(self.redis.zcard(keys.QUARANTINE))
        register = self.workers.look()
        return Snapshot(
            at=instant(now_us),
            read_at=time.monotonic(),
            counts=self.records.counts(),
            queues=self.queues.overview(),
            workers=register.live,
            lost_workers=register.lost,
            unreadable_workers=register.unreadable,
            recent=self.records.page(Filter(), limit=RECENT).items,
            types=self._types(),
            minutes=minutes,
            info=self._info(),
            overdue=overdue,
            unreaped=unreaped,
            damaged=damaged,
            leader=self.locks.get(LEADER),
        )

    def _types(self) -> dict[str, str]:
        self.types.refresh()
        offers = filter(None, map(self.types.find, self.types.names()))
        now = self.types.now
        return {offer.name: absence(offer, now) if offer.is_gone(now) else "" for offer in offers}

    def _lateness(self, now_us: int) -> tuple[timedelta, timedelta]:
        due = [key(name) for name in self.queues.weights for key in (keys.scheduled, keys.retrying)]
        with self.redis.pipeline(transaction=False) as pipeline:
            for key in (keys.LEASES, *due):
                pipeline.zrange(key, 0, 0, withscores=True)
            firsts = [row[0][1] if row else now_us for row in pipeline.execute()]
        late = [max(timedelta(0), instant(now_us) - instant(score)) for score in firsts]
        return max(late[1:], default=timedelta(0)), late[0]

    def _minutes(self, minute: int) -> dict[int, Mapping[str, int]]:
        wanted = range(minute - MINUTES + 1, minute + 1)
        missing = [each for each in wanted if each not in self.settled]
        named = {keys.throughput(each): "hash" for each in missing}
        with quarantining(self.records.scripts, named), self.redis.pipeline(transaction=False) as pipeline:
            for key in named:
                pipeline.hgetall(key)
            found = dict(zip(missing, map(_counts, pipeline.execute()), strict=True))
        answer = {each: self.settled[each] if each in self.settled else found[each] for each in wanted}
        self.settled = {each: counts for each, counts in answer.items() if each <= minute - _SETTLED}
        return answer

    def _info(self) -> Mapping[str, Any]:
        """Returns the fields of INFO; empty if the ACL user lacks the command, which is not an error."""
        if time.monotonic() - self.info_at >= _INFO_EVERY:
            with translated():
                try:
                    self.info = self.redis.info()
                except ResponseError:
                    self.info = {}
            self.info_at = time.monotonic()
        return self.info


def _counts(fields: Mapping[bytes, bytes]) -> dict[str, int]:
    counts = {text(name): whole_or_none(value) for name, value in fields.items()}
    return {name: count for name, count in counts.items() if count is not None}
