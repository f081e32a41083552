"""The contribution of a feature to the housekeepers."""

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
    """The dependencies of the jobs of a feature."""

    settings: Settings
    scripts: Scripts
    records: Records
    tracing: Tracing


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """The contribution of a feature to the housekeepers: jobs, each under a lock of its own, and hooks around them."""

    jobs: Callable[[Services], Sequence[HousekeepingJob]]
    """Those with a method `collect` are registered as collectors of metrics."""
    start: Callable[[Settings, Scripts, str], None] | None = None
    """Is called with the settings, the scripts and the name of a housekeeper that starts."""
    gauges: Callable[[Scripts], Iterable[Metric]] | None = None
    """Returns gauges of the whole system; the leader alone calls it."""


def features() -> list[Feature]:
    """Returns the contributions of all features to the housekeepers."""
    return features_of("worker")
