"""What a feature adds to the housekeepers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from firmq.shared.registry import features_of

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from firmq.shared.config.settings import Settings
    from firmq.shared.observability.tracing import Tracing
    from firmq.shared.redis.scripts import Scripts
    from firmq.shared.stores.tasks import Records
    from firmq.worker.housekeeping.registry import HousekeepingJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What the jobs of a feature can be made with."""

    settings: Settings
    scripts: Scripts
    records: Records
    tracing: Tracing


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """What a feature adds: its jobs, each of which runs under a lock of its own, and what goes on around them."""

    jobs: Callable[[Services], Sequence[HousekeepingJob]]
    """Those with a method `collect` are registered as collectors of metrics."""
    start: Callable[[Settings, Scripts, str], None] | None = None
    """Called when a housekeeper of a name starts."""
    gauges: Callable[[Scripts], Iterable[Metric]] | None = None
    """Returns what the leader measures of the whole system."""


def features() -> list[Feature]:
    """Returns what all features add to the housekeepers."""
    return features_of("worker")
