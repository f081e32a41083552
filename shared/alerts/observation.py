"""What the rules judge: the state of the whole system at one moment."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from firmq.shared.domain.clock import instant, instant_us
from firmq.shared.domain.task import TaskState
from firmq.shared.redis.client import text, translated
from firmq.shared.redis.scripts import Scripts
from firmq.shared.redis.startup_check import info
from firmq.shared.registry import added
from firmq.shared.stores.deploys import Deploy, Deploys, VersionEnds
from firmq.shared.stores.failure_groups import FailureGroup, FailureGroups
from firmq.shared.stores.locks import LockAdmin, LockInfo
from firmq.shared.stores.queues import QueueInfo, Queues
from firmq.shared.stores.task_types import types_waiting
from firmq.shared.stores.tasks import Records
from firmq.shared.stores.workers import WorkerInfo, Workers

if TYPE_CHECKING:
    from firmq.shared.alerts.rules import Alert

RECENT = timedelta(minutes=10)
"""How long an event of a moment, such as a dead letter, counts as recent."""
_RUNS = 30
"""Runs that are kept of a schedule."""
_DEAD_LETTERS, _GROUPS = 1000, 20
"""The most recent dead letters that are looked at, and the most groups of them."""


class WaitingType(NamedTuple):
    """Tasks of a type that no live worker can run, the first of them since this moment."""

    name: str
    tasks: int
    since: datetime


class RecentFailures(NamedTuple):
    """A group of dead letters, and how many of its recent ones there are."""

    group: FailureGroup
    recent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
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
    types_waiting: Sequence[WaitingType]
    failures: Sequence[RecentFailures]
    """The causes of recent dead letters, the most frequent first."""
    info: Mapping[str, Any]
    overdue: timedelta
    """How late the most overdue scheduled or retrying task is."""
    unreaped: timedelta
    """How long ago the oldest ended lease that is still to be recovered ended."""
    schedule_overdue: timedelta
    """How late the most overdue schedule is."""
    missed_schedules: Mapping[str, datetime]
    """Schedules that missed due times recently, with when that was noticed."""
    failing_schedules: Mapping[str, int]
    """Schedules whose last runs failed, with how many in a row; at most 100, those with most first."""
    locks: Sequence[LockInfo]
    """The locks of housekeeping."""
    lost_locks: Mapping[str, datetime]
    """Locks that were recently lost by a holder that was still at work, with when that was noticed."""
    of_features: Sequence[Alert] = ()
    """The alerts that features raise."""
    deploys: Sequence[Deploy] = ()
    """The versions on record, the latest first."""
    version_ends: Sequence[VersionEnds] = ()
    """How attempts ended by type and version."""
    quarantined: int = 0
    """Keys moved to quarantine in the last week because they held a value of the wrong type."""

    @property
    def alive(self) -> int:
        """The number of live workers that are not silent, including those with a corrupt record."""
        return sum(each.state != "silent" for each in self.workers) + len(self.unreadable_workers)

    def now(self) -> datetime:
        """Returns the current time of Redis' clock, extrapolated with this process's clock."""
        return self.at + timedelta(seconds=time.monotonic() - self.read_at)

    def is_recent(self, at: datetime) -> bool:
        """Returns whether a moment is in the last ten minutes."""
        return self.now() - at < RECENT


class Observer:
    """Observes the system. A round costs the same however many tasks there are."""

    def __init__(self, scripts: Scripts, queues: Queues, records: Records, workers: Workers) -> None:
        self.scripts = scripts
        self.queues = queues
        self.records = records
        self.workers = workers
        self.locks = LockAdmin(scripts)
        self.failure_groups = FailureGroups(scripts)
        self.deploys = Deploys(scripts)

    def observe(self) -> Observation:
        """Returns the state of the system now. Raises StoreUnavailable."""
        with translated():
            return self._observe()

    def _observe(self) -> Observation:
        at = instant(self.scripts.now_us())
        queues, workers, first = self.queues.overview(), self.workers.look(), self._firsts(at)
        return Observation(
            at=at,
            read_at=time.monotonic(),
            counts=self.records.counts(),
            queues=queues,
            workers=workers.live,
            lost_workers=workers.lost,
            unreadable_workers=workers.unreadable,
            types_waiting=[WaitingType(name, tasks, instant(us)) for name, tasks, us in types_waiting(self.scripts)],
            failures=self._failures(at),
            info=info(self.scripts.redis),
            overdue=max((_late(queue.due_at, at) for queue in queues), default=timedelta(0)),
            locks=self.locks.of_housekeeping(),
            deploys=self.deploys.all(),
            version_ends=self.deploys.ends(instant_us(at)),
            of_features=[alert for alerts in added("alerts") for alert in alerts(self.scripts)],
            **first,
        )

    def _firsts(self, at: datetime) -> dict[str, Any]:
        keys, since = self.scripts.keys, instant_us(at - RECENT)
        schedules = keys.SCHEDULES_DUE, keys.SCHEDULES_MISSED, keys.SCHEDULES_FAILING
        named = dict.fromkeys((keys.LEASES, *schedules, keys.LOST_LOCKS), "zset")
        with self.scripts.quarantining(named), self.scripts.redis.pipeline(transaction=False) as pipeline:
            pipeline.zcard(keys.QUARANTINE)
            pipeline.zrange(keys.LEASES, 0, 0, withscores=True)
            pipeline.zrange(keys.SCHEDULES_DUE, 0, 0, withscores=True)
            pipeline.zrange(keys.SCHEDULES_MISSED, since, "+inf", byscore=True, withscores=True, offset=0, num=100)
            pipeline.zrange(keys.LOST_LOCKS, since, "+inf", byscore=True, withscores=True)
            pipeline.zrange(keys.SCHEDULES_FAILING, 0, 99, desc=True, withscores=True)
            quarantined, lease, schedule, missed, lost, failing = pipeline.execute()
        return {
            "quarantined": quarantined,
            "unreaped": _late(instant(lease[0][1]) if lease else None, at),
            "schedule_overdue": _late(instant(schedule[0][1]) if schedule else None, at),
            "missed_schedules": {text(name): instant(us) for name, us in missed},
            "failing_schedules": {text(name): int(min(count, _RUNS)) for name, count in failing if count > 0},
            "lost_locks": {text(name): instant(us) for name, us in lost},
        }

    def _failures(self, at: datetime) -> list[RecentFailures]:
        keys, redis = self.scripts.keys, self.scripts.redis
        failed, since = keys.ended(TaskState.FAILED), instant_us(at - RECENT)
        with self.scripts.quarantining({failed: "zset", keys.FAILURE_GROUP_OF: "hash"}):
            ids: list[Any] = redis.zrange(failed, "+inf", since, desc=True, byscore=True, offset=0, num=_DEAD_LETTERS)
            groups = redis.hmget(keys.FAILURE_GROUP_OF, ids) if ids else []
        recent = Counter(text(each) for each in groups if each).most_common(_GROUPS)
        found = {each.key: each for each in self.failure_groups.many([key for key, _ in recent])}
        return [RecentFailures(found[key], count) for key, count in recent if key in found]


def _late(due: datetime | None, now: datetime) -> timedelta:
    return max(timedelta(0), now - due) if due else timedelta(0)
