"""One snapshot of the whole system, shared by all open pages of this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from firmq.dashboard.metrics import Metrics
from firmq.dashboard.stores import Stores
from firmq.shared.conditions.observation import Observation, Observer
from firmq.shared.config.settings import Settings
from firmq.shared.domain.clock import instant_us
from firmq.shared.domain.decode import whole_or_none
from firmq.shared.domain.task import TaskSummary
from firmq.shared.redis.client import text, translated
from firmq.shared.stores.locks import LEADER, LockInfo
from firmq.shared.stores.pauses import Pause
from firmq.shared.stores.task_types import absence
from firmq.shared.stores.tasks import Filter
from firmq.shared.stores.waiting import Waiting, explain_waiting

MINUTES = 60
RECENT = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(Observation):
    """The state of the system at one moment: the input of the alerts, and more for the pages."""

    recent: Sequence[TaskSummary]
    types: Mapping[str, str]
    """The registered types, each with a sentence about its absence; empty while a live worker has the type."""
    minutes: Mapping[int, Mapping[str, int]]
    """Counts of events in each of the last sixty minutes, the oldest first."""
    waiting: Sequence[Waiting]
    """Why pending tasks wait, the most frequent reason first."""
    paused_types: Mapping[str, Pause]
    awaiting: int
    """How many of the scheduled tasks wait for a signal."""

    @property
    def leader(self) -> LockInfo:
        """Returns the lock of the leading housekeeper; free if housekeepers work without locks."""
        return next(lock for lock in self.locks if lock.name == LEADER)

    def total(self, what: str, minutes: int = MINUTES) -> int:
        """Returns the number of such events in the last minutes."""
        latest = list(self.minutes.values())[-minutes:]
        return sum(minute.get(what, 0) for minute in latest)


class Overview:
    """Reads the snapshot."""

    def __init__(self, stores: Stores, metrics: Metrics, settings: Settings) -> None:
        self.stores = stores
        self.observer = Observer(stores.tasks.scripts, settings)
        self.metrics = metrics

    def read(self) -> Snapshot:
        """Returns the state of the system now. Raises StoreUnavailable."""
        with self.metrics.refreshes.time(), self.metrics.refresh_failures.count_exceptions(), translated():
            return self._read()

    def _read(self) -> Snapshot:
        observed = self.observer.observe()
        return Snapshot(
            **{each.name: getattr(observed, each.name) for each in fields(observed)},
            recent=self.stores.tasks.page(Filter(), limit=RECENT).items,
            types=self._types(),
            minutes=self._minutes(instant_us(observed.at) // 60_000_000),
            waiting=explain_waiting(self.stores.tasks.scripts, observed.queues, observed.workers),
            paused_types=self.stores.queues.pauses.types(),
            awaiting=self.stores.redis.zcard(self.stores.tasks.keys.AWAITING),
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


def _counts(fields: Mapping[bytes, bytes]) -> dict[str, int]:
    counts = {text(name): whole_or_none(value) for name, value in fields.items()}
    return {name: count for name, count in counts.items() if count is not None}
