"""One snapshot of the whole system, shared by all open pages of this process."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from taskqueue.dashboard.metrics import Metrics
from taskqueue.dashboard.stores import Stores
from taskqueue.shared.domain.clock import instant
from taskqueue.shared.domain.decode import whole_or_none
from taskqueue.shared.domain.task import TaskState, TaskSummary
from taskqueue.shared.redis.client import text, translated
from taskqueue.shared.redis.startup_check import info
from taskqueue.shared.stores.locks import LEADER, LockInfo
from taskqueue.shared.stores.queues import QueueInfo
from taskqueue.shared.stores.task_types import absence
from taskqueue.shared.stores.tasks import Filter
from taskqueue.shared.stores.workers import WorkerInfo

MINUTES = 60
RECENT = 12


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
    quarantined: int = 0
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

    def total(self, what: str, minutes: int = MINUTES) -> int:
        """Returns the number of such events in the last minutes."""
        latest = list(self.minutes.values())[-minutes:]
        return sum(minute.get(what, 0) for minute in latest)


class Overview:
    """Reads the snapshot."""

    def __init__(self, stores: Stores, metrics: Metrics) -> None:
        self.stores = stores
        self.metrics = metrics

    def read(self) -> Snapshot:
        """Returns the state of the system now. Raises StoreUnavailable."""
        with self.metrics.refreshes.time(), self.metrics.refresh_failures.count_exceptions(), translated():
            return self._read()

    def _read(self) -> Snapshot:
        stores, redis, keys = self.stores, self.stores.redis, self.stores.tasks.keys
        seconds, us = redis.time()
        at = instant(int(seconds) * 1_000_000 + int(us))
        lease = redis.zrange(keys.LEASES, 0, 0, withscores=True)
        queues, workers = stores.queues.overview(), stores.workers.look()
        return Snapshot(
            at=at,
            read_at=time.monotonic(),
            counts=stores.tasks.counts(),
            queues=queues,
            workers=workers.live,
            lost_workers=workers.lost,
            unreadable_workers=workers.unreadable,
            recent=stores.tasks.page(Filter(), limit=RECENT).items,
            types=self._types(),
            minutes=self._minutes(int(seconds) // 60),
            info=info(redis),
            overdue=max(_late(queue.due_at, at) for queue in queues),
            unreaped=_late(instant(float(lease[0][1])) if lease else None, at),
            quarantined=redis.zcard(keys.QUARANTINE),
            leader=stores.locks.get(LEADER),
        )

    def _types(self) -> dict[str, str]:
        types = self.stores.types
        types.refresh()
        offers = filter(None, map(types.find, types.names()))
        return {offer.name: absence(offer, types.now) if offer.is_gone(types.now) else "" for offer in offers}

    def _minutes(self, minute: int) -> dict[int, Mapping[str, int]]:
        wanted = range(minute - MINUTES + 1, minute + 1)
        scripts = self.stores.tasks.scripts
        named = {scripts.keys.throughput(each): "hash" for each in wanted}
        with scripts.quarantining(named), self.stores.redis.pipeline(transaction=False) as pipeline:
            for key in named:
                pipeline.hgetall(key)
            return dict(zip(wanted, map(_counts, pipeline.execute()), strict=True))


def _late(due: datetime | None, now: datetime) -> timedelta:
    return max(timedelta(0), now - due) if due else timedelta(0)


def _counts(fields: Mapping[bytes, bytes]) -> dict[str, int]:
    counts = {text(name): whole_or_none(value) for name, value in fields.items()}
    return {name: count for name, count in counts.items() if count is not None}
