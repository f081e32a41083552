"""The contribution of a feature to workers and housekeepers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from firmq.shared.registry import features_of

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from firmq.shared.config.settings import Settings
    from firmq.shared.config.stores import Place
    from firmq.shared.observability.tracing import Tracing
    from firmq.shared.redis.scripts import Scripts
    from firmq.shared.stores.tasks import Records
    from firmq.worker.housekeeping.locking import Leadership, LockStrategy
    from firmq.worker.housekeeping.registry import HousekeepingJob


NAME = "FIRMQ_WORKER_NAME"
"""The variable with the name of a worker that another program starts; else it is made of its host and process."""


class Background(Protocol):
    """What a feature runs beside a worker."""

    def stop(self) -> None:
        """Stops it and waits until it has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """The worker beside which a feature runs something."""

    settings: Settings
    name: str
    draining: Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The dependencies of the jobs of a feature."""

    settings: Settings
    scripts: Scripts
    records: Records
    tracing: Tracing
    place: Place | None = None
    """Where the store is among several."""
    others: Mapping[str, Scripts] = field(default_factory=dict)
    """The other stores of the system, by their labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """The contribution of a feature: housekeeping jobs, each under a lock of its own, and hooks of the processes."""

    jobs: Callable[[Services], Sequence[HousekeepingJob]] = lambda services: ()
    """Those with a method `collect` are registered as collectors of metrics."""
    jobs_without_lock: Callable[[Services, Leadership], Mapping[HousekeepingJob, LockStrategy]] = lambda *_: {}
    """Jobs that have no lock of their own, each with what decides which instance runs it."""
    prepare: Callable[[Settings], object] | None = None
    """Is called first in a worker; exits with a reason when the feature cannot work with these settings."""
    beside: Callable[[Beside], Background | None] | None = None
    """Starts what runs beside a worker; returns None if these settings need nothing."""
    start: Callable[[Settings, Scripts, str], None] | None = None
    """Is called with the settings, the scripts and the name of a housekeeper that starts."""
    gauges: Callable[[Scripts], Iterable[Metric]] | None = None
    """Returns gauges of the whole system; the leader alone calls it."""


def features() -> list[Feature]:
    """Returns the contributions of all features."""
    return features_of("worker")
