"""The jobs that send alerts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from firmq.worker.feature import Feature, Services
from firmq.worker.features.alerts.channels import channels_of
from firmq.worker.features.alerts.job import Alerts
from firmq.worker.features.alerts.outage import Outage
from firmq.worker.housekeeping.locking import Everywhere, Leadership, LockStrategy, OnLeader

if TYPE_CHECKING:
    from firmq.worker.housekeeping.registry import HousekeepingJob


def _jobs(services: Services, leadership: Leadership) -> Mapping[HousekeepingJob, LockStrategy]:
    channels = channels_of(services.settings)
    if not channels:
        return {}
    return {
        Alerts(services, channels): OnLeader(leadership),
        # During an outage no instance holds a lock, so every instance runs this job.
        Outage(services, leadership, channels): Everywhere(),
    }


FEATURE = Feature(jobs_without_lock=_jobs)
