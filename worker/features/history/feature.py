"""The job that stores history, and the leader's metrics of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily, Metric

from firmq.shared.errors import StoreUnavailable, needs
from firmq.shared.features.history.settings import HistorySettings
from firmq.shared.features.history.unarchived import Unarchived, feed
from firmq.shared.redis.client import translated
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.presence import LIVE, RELAY, Presence
from firmq.worker.feature import Feature, Services

if TYPE_CHECKING:
    from firmq.shared.config.settings import Settings
    from firmq.worker.features.history.job import History

log = logging.getLogger(__name__)

TIMEOUT = 10.0
"""Seconds that the job waits for its database; less than `LATE`, so that a hung one is not reported as a stuck job."""


def _jobs(services: Services) -> list[History]:
    settings = HistorySettings.of(services.settings)
    if not settings.history_url:
        return []
    with needs("HISTORY_URL", extra="history"):
        from firmq.shared.features.history.database import Database
        from firmq.shared.features.history.feeding import Feeder
        from firmq.worker.features.history.job import History
    feeder = Feeder(Database(settings.history_url, TIMEOUT))
    interval = timedelta(seconds=settings.housekeeper_history_interval)
    return [History(services.scripts, feeder, settings.history_retention(), interval)]


def forget_history(settings: Settings, scripts: Scripts, name: str) -> None:
    """Stops the registration of ended tasks if no housekeeper stores a history any longer."""
    if HistorySettings.of(settings).history_url:
        return
    try:
        with translated():
            silences = Presence(scripts).silences().items()
            if any(silent < LIVE for other, silent in silences if other not in (RELAY, name)):
                return
            Unarchived(scripts).give_up()
    except StoreUnavailable as error:
        log.warning("ended tasks are still registered for a history: %s", error)


def _gauges(scripts: Scripts) -> Iterator[Metric]:
    """Yields the lag of the history; nothing without a history."""
    state = feed(scripts)
    if state is None:
        return
    for name, text, value in (
        ("waiting", "Ended tasks that are not in the history yet.", state.waiting),
        ("lag_seconds", "Age of the oldest ended task that is not in the history yet.", state.lag.total_seconds()),
        ("lost", "Ended tasks dropped from the history because too many waited for it.", state.lost),
    ):
        yield GaugeMetricFamily(f"firmq_history_{name}", text, value)


FEATURE = Feature(jobs=_jobs, start=forget_history, gauges=_gauges)
