"""Deploys: when each APP_VERSION was first seen, and the outcomes of attempts of each type under it.

Heartbeats record versions (`announce.lua`), reports count attempts by hour (`report.lua`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from firmq.shared.domain.clock import instant
from firmq.shared.domain.decode import whole_or_none
from firmq.shared.redis.client import text

if TYPE_CHECKING:
    from firmq.shared.redis.scripts import Scripts

HOUR = 3_600_000_000
HOURS = 25
"""Hours whose counts are read: the current one and a day."""
_RECENT = 2
"""Hours of these that are recent: the current one and the one before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deploy:
    """A version, when it was first seen serving, and when last."""

    version: str
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True, slots=True)
class Ends:
    """Attempts that ended."""

    completed: int = 0
    failed: int = 0

    @property
    def total(self) -> int:
        return self.completed + self.failed

    @property
    def failure_rate(self) -> float:
        """Returns the share that failed; 0 for none."""
        return self.failed / self.total if self.total else 0.0

    def __add__(self, other: Ends) -> Ends:
        return Ends(self.completed + other.completed, self.failed + other.failed)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionEnds:
    """How attempts of a type ended under a version: in this hour and the one before, and in the last day."""

    type: str
    version: str
    recent: Ends
    day: Ends


_Counts = Mapping[tuple[str, str], Ends]


class Deploys:
    """The versions, and the counts of their attempts. One instance reads the counts of a past hour once."""

    def __init__(self, scripts: Scripts) -> None:
        self.scripts = scripts
        self.past: dict[int, _Counts] = {}

    def all(self) -> list[Deploy]:
        """Returns the versions on record, the latest first."""
        keys, redis = self.scripts.keys, self.scripts.redis
        with (
            self.scripts.quarantining({keys.DEPLOYS: "zset", keys.DEPLOYS_SEEN: "zset"}),
            redis.pipeline(transaction=False) as pipeline,
        ):
            pipeline.zrevrange(keys.DEPLOYS, 0, -1, withscores=True)
            pipeline.zrange(keys.DEPLOYS_SEEN, 0, -1, withscores=True)
            first, last = pipeline.execute()
        seen = dict(last)
        return [
            Deploy(version=text(version), first_at=instant(at), last_at=instant(seen.get(version, at)))
            for version, at in first
        ]

    def ends(self, now_us: int) -> list[VersionEnds]:
        """Returns how attempts ended by type and version. Raises StoreUnavailable."""
        this = now_us // HOUR
        hours = range(this - HOURS + 1, this + 1)
        # The hour before is read again: a report may have been under way when it ended.
        missing = [hour for hour in hours if hour not in self.past or hour >= this - 1]
        found = dict(zip(missing, self._read(missing), strict=True))
        self.past = {hour: found.get(hour, self.past.get(hour, {})) for hour in hours}
        recent = _sum(self.past[hour] for hour in hours[-_RECENT:])
        return [
            VersionEnds(type=kind, version=version, recent=recent.get((version, kind), Ends()), day=ends)
            for (version, kind), ends in _sum(self.past.values()).items()
        ]

    def _read(self, hours: list[int]) -> list[_Counts]:
        named = {self.scripts.keys.version_ends(hour): "hash" for hour in hours}
        with self.scripts.quarantining(named), self.scripts.redis.pipeline(transaction=False) as pipeline:
            for key in named:
                pipeline.hgetall(key)
            return [_counts(each) for each in pipeline.execute()]


def _sum(hours: Any) -> dict[tuple[str, str], Ends]:
    found: dict[tuple[str, str], Ends] = {}
    for counts in hours:
        for key, ends in counts.items():
            found[key] = found.get(key, Ends()) + ends
    return found


def _counts(fields: Mapping[Any, Any]) -> _Counts:
    """Returns the counts of an hour, from fields such as `1.42|charge-card|failed`."""
    found: dict[tuple[str, str], Ends] = {}
    for name, value in fields.items():
        parts, count = text(name).split("|"), whole_or_none(value)
        if len(parts) == 3 and count is not None and parts[2] in ("completed", "failed"):
            key = (parts[0], parts[1])
            found[key] = found.get(key, Ends()) + Ends(**{parts[2]: count})
    return found
