"""The input of the conditions: the state of the whole system at one moment."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from firmq.shared.config.groups.conditions import ConditionSettings
from firmq.shared.domain.clock import instant, instant_us
from firmq.shared.domain.task import TaskState
from firmq.shared.errors import CorruptKey
from firmq.shared.redis.client import text, translated
from firmq.shared.redis.startup_check import info
from firmq.shared.registry import added
from firmq.shared.stores.deploys import Deploy, Deploys, VersionEnds
from firmq.shared.stores.failure_groups import FailureGroup, FailureGroups
from firmq.shared.stores.locks import LockAdmin, LockInfo
from firmq.shared.stores.presence import Presence
from firmq.shared.stores.queues import QueueInfo, Queues
from firmq.shared.stores.task_types import types_waiting
from firmq.shared.stores.tasks import Records
from firmq.shared.stores.workers import WorkerInfo, Workers

if TYPE_CHECKING:
    from firmq.shared.conditions.conditions import Alert
    from firmq.shared.config.settings import Settings
    from firmq.shared.redis.scripts import Scripts

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
    """The state of the system at one moment of Redis' clock; `Observer.glance` leaves fields from `counts` on empty."""

    at: datetime
    read_at: float = field(default_factory=time.monotonic)
    """The same moment on this process's monotonic clock, in seconds."""
    settings: ConditionSettings = field(default_factory=ConditionSettings)
    """The settings with the thresholds."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """The server's INFO; empty if this user may not read it."""
    queues: Sequence[QueueInfo] = ()
    workers: Sequence[WorkerInfo] = ()
    lost_workers: Sequence[WorkerInfo] = ()
    """Workers lost in the last week, the latest first."""
    unreadable_workers: Sequence[str] = ()
    """Names of live workers whose record is corrupt."""
    silences: Mapping[str, float] = field(default_factory=dict)
    """Seconds since the last report of each housekeeper and relay that ran in the last week."""
    quarantined: int = 0
    """Keys moved to quarantine in the last week because they held a value of the wrong type."""
    last_quarantined: Sequence[str] = ()
    """The latest of them."""
    lease_ended_at: datetime | None = None
    """The earliest end of a lease, past or future."""
    schedule_due_at: datetime | None = None
    """When the first schedule is due."""
    missed_schedules: Sequence[str] = ()
    """Schedules that missed due times recently."""
    failing_schedules: Mapping[str, int] = field(default_factory=dict)
    """Schedules whose last runs failed, with how many in a row; at most 100, those with most first."""
    lost_locks: Sequence[str] = ()
    """Locks that were recently lost by a holder that was still at work."""
    counts: Mapping[TaskState, int] = field(default_factory=dict)
    types_waiting: Sequence[WaitingType] = ()
    failures: Sequence[RecentFailures] = ()
    """The causes of recent dead letters, the most frequent first."""
    locks: Sequence[LockInfo] = ()
    """The locks of housekeeping."""
    of_features: Sequence[Alert] = ()
    """The alerts that features raise."""
    deploys: Sequence[Deploy] = ()
    """The versions on record, the latest first."""
    version_ends: Sequence[VersionEnds] = ()
    """How attempts ended by type and version."""

    @property
    def alive(self) -> int:
        """Returns the number of live workers that are not silent, including those with a corrupt record."""
        return sum(each.state != "silent" for each in self.workers) + len(self.unreadable_workers)

    def now(self) -> datetime:
        """Returns the current time of Redis' clock, extrapolated with this process's clock."""
        return self.at + timedelta(seconds=time.monotonic() - self.read_at)

    def seconds_since(self, at: datetime | None) -> float:
        """Returns the seconds from `at` to this observation; 0 if `at` is None or later."""
        return max(0.0, (self.at - at).total_seconds()) if at else 0.0


class Observer:
    """Observes the system. A round costs the same however many tasks there are."""

    def __init__(self, scripts: Scripts, settings: Settings) -> None:
        self.scripts = scripts
        self.settings = settings
        self.queues = Queues.of(scripts, settings)
        self.records = Records(scripts, self.queues.register)
        self.workers = Workers(scripts.redis, settings.lease())
        self.locks = LockAdmin(scripts)
        self.failure_groups = FailureGroups(scripts)
        self.deploys = Deploys(scripts)

    def glance(self) -> Observation:
        """Returns the state that probes may read often: Redis, queues, workers, due work. Raises StoreUnavailable."""
        with translated():
            at, register = instant(self.scripts.now_us()), self.workers.look()
            return Observation(
                at=at,
                settings=self.settings,
                info=info(self.scripts.redis),
                queues=self.queues.overview(),
                workers=register.live,
                lost_workers=register.lost,
                unreadable_workers=register.unreadable,
                silences=Presence(self.scripts).silences(),
                **self._firsts(at),
            )

    def observe(self) -> Observation:
        """Returns the state of the system now. Raises StoreUnavailable."""
        seen = self.glance()
        with translated():
            return replace(
                seen,
                counts=self.records.counts(),
                types_waiting=[WaitingType(name, many, instant(us)) for name, many, us in types_waiting(self.scripts)],
                failures=self._failures(seen.at),
                locks=self.locks.of_housekeeping(),
                deploys=self.deploys.all(),
                version_ends=self.deploys.ends(instant_us(seen.at)),
                of_features=[alert for alerts in added("alerts") for alert in alerts(self.scripts)],
            )

    def _firsts(self, at: datetime) -> dict[str, Any]:
        try:
            return self._read_firsts(at)
        except CorruptKey:  # it is in quarantine now, and a probe that failed would take the gateway out of service
            return self._read_firsts(at)

    def _read_firsts(self, at: datetime) -> dict[str, Any]:
        keys, since = self.scripts.keys, instant_us(at - RECENT)
        schedules = keys.SCHEDULES_DUE, keys.SCHEDULES_MISSED, keys.SCHEDULES_FAILING
        named = dict.fromkeys((keys.LEASES, *schedules, keys.LOST_LOCKS, keys.QUARANTINE), "zset")
        with self.scripts.quarantining(named), self.scripts.redis.pipeline(transaction=False) as pipeline:
            pipeline.zcard(keys.QUARANTINE)
            pipeline.zrevrange(keys.QUARANTINE, 0, 2)
            pipeline.zrange(keys.LEASES, 0, 0, withscores=True)
            pipeline.zrange(keys.SCHEDULES_DUE, 0, 0, withscores=True)
            pipeline.zrange(keys.SCHEDULES_MISSED, since, "+inf", byscore=True, offset=0, num=100)
            pipeline.zrange(keys.LOST_LOCKS, since, "+inf", byscore=True)
            pipeline.zrange(keys.SCHEDULES_FAILING, 0, 99, desc=True, withscores=True)
            quarantined, last, lease, schedule, missed, lost, failing = pipeline.execute()
        return {
            "quarantined": quarantined,
            "last_quarantined": [text(key) for key in last],
            "lease_ended_at": instant(lease[0][1]) if lease else None,
            "schedule_due_at": instant(schedule[0][1]) if schedule else None,
            "missed_schedules": [text(name) for name in missed],
            "failing_schedules": {text(name): int(min(count, _RUNS)) for name, count in failing if count > 0},
            "lost_locks": [text(name) for name in lost],
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
