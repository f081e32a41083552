"""Wires a housekeeper together and runs it until it is told to stop."""

from __future__ import annotations

import logging
import signal
import threading
from datetime import timedelta

from prometheus_client import CollectorRegistry

from shared import logs
from shared.probe import Check, Probe
from shared.queues import Queues
from shared.records import Records
from shared.redis_client import connect
from shared.scripts import Scripts
from shared.settings import Settings, exit_with, load_or_exit
from shared.tasks import TaskState
from shared.workers import Workers
from worker.housekeeping.jobs import HousekeepingJob
from worker.housekeeping.keeper import Housekeeper
from worker.housekeeping.metrics import SystemGauges
from worker.housekeeping.recovery import Recovery
from worker.housekeeping.timeout import Timeout
from worker.housekeeping.ttl import Ttl
from worker.housekeeping.unlock import Unlock

log = logging.getLogger(__name__)

LATE = 30.0
"""Seconds without a success after which a job counts as stuck."""


def build_jobs(settings: Settings, scripts: Scripts) -> list[HousekeepingJob]:
    """The jobs as the settings want them."""
    queues = list(settings.queues)
    seconds = lambda value: timedelta(seconds=value)  # noqa: E731
    return [
        Unlock(scripts, queues, seconds(settings.housekeeper_unlock_interval), settings.housekeeper_unlock_parallelism),
        Timeout(
            scripts,
            Workers(scripts.redis),
            queues,
            seconds(settings.housekeeper_timeout_interval),
            settings.max_crashes,
        ),
        Recovery(
            scripts,
            queues,
            seconds(settings.housekeeper_recovery_interval),
            seconds(settings.housekeeper_recovery_grace),
        ),
        Ttl(scripts, retention(settings), seconds(settings.housekeeper_ttl_interval)),
    ]


def retention(settings: Settings) -> dict[TaskState, timedelta]:
    """How long an ended task is kept, by its final state."""
    return {
        TaskState.COMPLETED: timedelta(seconds=settings.retention_completed),
        TaskState.FAILED: timedelta(seconds=settings.retention_failed),
        TaskState.CANCELLED: timedelta(seconds=settings.retention_cancelled),
        TaskState.EXPIRED: timedelta(seconds=settings.retention_expired),
    }


def main() -> int:
    """`python -m worker.housekeeping`."""
    settings = load_or_exit()
    logs.configure("housekeeper", settings.log_level)
    scripts = Scripts(connect(settings.store_url, timeout=2.0, name="housekeeper"))
    keeper = Housekeeper(settings.instance_id, build_jobs(settings, scripts))
    probe = _probe(settings, keeper, scripts)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda signum, frame: stop.set())
    probe.start()
    keeper.start()
    log.info("housekeeper %s: %s", keeper.instance, ", ".join(job.name for job in keeper.jobs))
    stop.wait()
    keeper.stop()
    probe.stop()
    log.info("housekeeper %s ended in order", keeper.instance)
    return 0


def _probe(settings: Settings, keeper: Housekeeper, scripts: Scripts) -> Probe:
    registry = CollectorRegistry()
    registry.register(keeper)
    records = Records(scripts, list(settings.queues))
    registry.register(SystemGauges(Queues(scripts, settings.queues), records, Workers(scripts.redis)))

    def check() -> Check:
        silent = keeper.silent_seconds()
        return Check(max(silent.values()) < LATE, {"instance": keeper.instance, "seconds_since_success": silent})

    try:
        return Probe(settings.bind_host, settings.housekeeper_metrics_port, registry, check, check)
    except OSError as error:
        exit_with(
            f"port {settings.housekeeper_metrics_port} for the housekeeper's metrics cannot be used ({error.strerror}): "
            "free it, or set HOUSEKEEPER_METRICS_PORT to another one (0 takes any free port)"
        )
