"""What a feature adds to the housekeepers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from firmq.shared.registry import features_of

if TYPE_CHECKING:
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
    """The housekeeping jobs of a feature; each runs under a lock of its own."""

    jobs: Callable[[Services], Sequence[HousekeepingJob]]


def features() -> list[Feature]:
    """Returns what all features add to the housekeepers."""
    return features_of("worker")
