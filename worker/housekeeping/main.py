"""Wires a housekeeper together and runs it until it is stopped."""

from __future__ import annotations

import json
import logging
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import InfoMetricFamily
from prometheus_client.registry import Collector

from firmq.shared.conditions.observation import Observer
from firmq.shared.config import foreign_names
from firmq.shared.config.collector import announce
from firmq.shared.config.settings import Settings, exit_with, load_or_exit
from firmq.shared.config.stores import Place
from firmq.shared.domain.lock import Lock, OnError
from firmq.shared.domain.schedule import Schedule
from firmq.shared.domain.task import TaskState
from firmq.shared.errors import StoreUnavailable
from firmq.shared.http.bind import raise_file_limit
from firmq.shared.http.metrics_server import Check, MetricsServer
from firmq.shared.observability import logs
from firmq.shared.observability.instrumentation import trace_redis
from firmq.shared.observability.tracing import Tracing
from firmq.shared.redis.client import connect
from firmq.shared.redis.scripts import Scripts
from firmq.shared.redis.startup_check import exit_if_unusable
from firmq.shared.stores.locks import LEADER, LockAdmin, Locks, NoLocks, RedisLocks, unanswered
from firmq.shared.stores.payloads import Payloads
from firmq.shared.stores.presence import EVERY, WITHOUT_LOCKS, Presence
from firmq.shared.stores.queue_register import QueueRegister
from firmq.shared.stores.queues import Queues
from firmq.shared.stores.schedules import ScheduleStore
from firmq.shared.stores.task_types import TaskTypes
from firmq.shared.stores.tasks import Records
from firmq.shared.stores.workers import Workers
from firmq.shared.submission.refusals import Refusal
from firmq.shared.submission.type_cache import TypeCache
from firmq.worker.feature import Services, features
from firmq.worker.housekeeping.jobs.max_elements import MaxElements
from firmq.worker.housekeeping.jobs.recovery import Recovery
from firmq.worker.housekeeping.jobs.schedules import Schedules
from firmq.worker.housekeeping.jobs.timeout import Timeout
from firmq.worker.housekeeping.jobs.ttl import Ttl
from firmq.worker.housekeeping.jobs.unlock import Unlock
from firmq.worker.housekeeping.lateness import Lateness
from firmq.worker.housekeeping.lock_metrics import LockMetrics
from firmq.worker.housekeeping.locking import Leadership, LockStrategy, RoundByRound
from firmq.worker.housekeeping.metrics import ByStore, Metrics, SystemGauges
from firmq.worker.housekeeping.registry import HousekeepingJob
from firmq.worker.housekeeping.runner import Housekeeper

log = logging.getLogger(__name__)

LATE = 30.0
"""Seconds without progress after which a job counts as stuck; three intervals for a job with longer ones."""
OTHERS_TIMEOUT = 0.5
"""Seconds that a job waits for an answer of another store."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a housekeeper."""

    runner: Housekeeper
    leadership: Leadership
    locks: Locks
    schedule_store: ScheduleStore
    registry: CollectorRegistry
    scripts: Scripts


def build(
    settings: Settings,
    scripts: Scripts,
    tracing: Tracing | None = None,
    others: Mapping[str, Scripts] | None = None,
    place: Place | None = None,
) -> Parts:
    """Returns a housekeeper for its settings: of the only store, or of the one at `place` beside `others`."""
    tracing = tracing or Tracing("housekeeper", settings, settings.instance_id)
    queues = Queues.of(scripts, settings)
    schedule_store = ScheduleStore(scripts, queues.bounds, tracing)
    late = Lateness("firmq_due_lateness_seconds", "How late due tasks were moved to their queues.")
    late_schedules = Lateness("firmq_schedule_lateness_seconds", "How late due times of schedules became tasks.")
    records = Records(scripts, queues.register, Payloads.of(settings))
    services = Services(
        settings=settings, scripts=scripts, records=records, tracing=tracing, place=place, others=others or {}
    )
    jobs: list[HousekeepingJob] = [
        *_jobs(settings, scripts, queues.register, late, tracing),
        *(job for feature in features() for job in feature.jobs(services)),
        MaxElements(scripts, limits(settings), _seconds(settings.housekeeper_max_elements_interval)),
        Schedules(
            schedule_store,
            _seconds(settings.housekeeper_schedules_interval),
            _seconds(settings.housekeeper_schedules_grace),
            late_schedules,
        ),
    ]
    metrics = Metrics(Observer(scripts, settings), _seconds(settings.housekeeper_metrics_interval))
    lock_metrics = LockMetrics()
    locks = _locks(settings, scripts, lock_metrics)
    leadership = Leadership(locks, lock_of(settings, metrics), settings.instance_id)
    strategies: dict[HousekeepingJob, LockStrategy] = {
        job: RoundByRound(locks, lock_of(settings, job), settings.instance_id) for job in jobs
    }
    strategies[metrics] = leadership
    for feature in features():
        strategies |= feature.jobs_without_lock(services, leadership)
    runner = Housekeeper(settings.instance_id, strategies, locks, lock_metrics, tracing)
    registry = CollectorRegistry()
    counting: list[Any] = [job for job in jobs if hasattr(job, "collect")]
    for part in (
        _Info(runner),
        runner,
        lock_metrics,
        late,
        late_schedules,
        SystemGauges(leadership, metrics),
        *counting,
    ):
        registry.register(part)
    return Parts(runner, leadership, locks, schedule_store, registry, scripts)


def _jobs(
    settings: Settings, scripts: Scripts, queues: QueueRegister, late: Lateness, tracing: Tracing
) -> list[HousekeepingJob]:
    return [
        Unlock(
            scripts,
            queues,
            _seconds(settings.housekeeper_unlock_interval),
            settings.housekeeper_unlock_parallelism,
            late,
        ),
        Timeout(
            scripts,
            Workers(scripts.redis, settings.lease()),
            queues,
            _seconds(settings.housekeeper_timeout_interval),
            settings.max_crashes,
            settings.lease(),
            tracing,
        ),
        Recovery(
            scripts,
            queues,
            _seconds(settings.housekeeper_recovery_interval),
            _seconds(settings.housekeeper_recovery_grace),
            settings.housekeeper_recovery_tasks,
            2 * settings.lease(),
        ),
        Ttl(
            scripts,
            retention(settings),
            _seconds(settings.housekeeper_ttl_interval),
            _seconds(settings.type_retention),
            queues.weights,
            _seconds(settings.queue_retention),
            _seconds(settings.retention_deleted),
        ),
    ]


def _locks(settings: Settings, scripts: Scripts, metrics: LockMetrics) -> Locks:
    if not settings.housekeeper_distributed_execution_enabled:
        return NoLocks()
    return RedisLocks(scripts, settings.instance_id, metrics)


def lock_of(settings: Settings, job: HousekeepingJob) -> Lock:
    """Returns a job's lock. It stays taken for nearly all of the job's interval, which all instances share.

    The rest is for an instance whose rounds vary a little. A dead holder costs `at_most` only, however long that is.
    """
    if job.name == LEADER:
        # The others try once in an interval: they may take it that much earlier, so that the gap stays below the lease.
        lease = _seconds(settings.housekeeper_leader_lease)
        life = 2 * max(lease, _seconds(settings.housekeeper_distributed_execution_lock_ttl))
        return Lock(name=LEADER, at_most=life, silence=max(lease - 2 * job.interval, lease / 2))
    return Lock(
        name=job.name,
        at_most=_seconds(settings.housekeeper_distributed_execution_lock_ttl),
        at_least=max(0.8 * job.interval, job.interval - _seconds(5)),
        wait=_seconds(settings.housekeeper_lock_wait),
        on_error=settings.housekeeper_lock_on_error.get(job.name, OnError.SKIP),
    )


def retention(settings: Settings) -> dict[TaskState, timedelta]:
    """Returns how long an ended task is kept, by its final state."""
    return {state: _seconds(getattr(settings, f"retention_{state}")) for state in TaskState if state.ended}


def limits(settings: Settings) -> dict[TaskState, int]:
    """Returns how many ended tasks are kept, by their final state."""
    return {state: getattr(settings, f"max_{state}") for state in TaskState if state.ended}


def main() -> int:
    """Runs `firmq housekeeper`."""
    settings = load_or_exit()
    logs.configure(
        "housekeeper",
        settings.log_level,
        settings.log_format,
        instance=settings.instance_id,
        app_version=settings.app_version,
        export=settings.log_export,
    )
    foreign_names.warn(settings)
    announce(settings)
    raise_file_limit()
    for each in settings.stores.values():
        exit_if_unusable(each.store_url)
    tracing = Tracing("housekeeper", settings, settings.instance_id)
    trace_redis(tracing)
    housekeepers = _build_all(settings, tracing)
    metrics_server = _metrics_server(settings, housekeepers)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda signum, frame: stop.set())
    metrics_server.start()
    _start_declaring(settings, housekeepers, stop)
    name = settings.instance_id + ("" if settings.housekeeper_distributed_execution_enabled else WITHOUT_LOCKS)
    presences = [Presence(parts.scripts) for parts in housekeepers.values()]
    threading.Thread(target=_report, args=(presences, name, stop), name="presence", daemon=True).start()
    for parts in housekeepers.values():
        for start in filter(None, (feature.start for feature in features())):
            start(settings, parts.scripts, name)
        if settings.housekeeper_distributed_execution_enabled:
            _release_locks_of_dead(parts.scripts, settings.instance_id)
        parts.runner.start()
    jobs = next(iter(housekeepers.values())).runner.jobs
    log.info("housekeeper %s: %s", settings.instance_id, ", ".join(job.name for job in jobs))
    stop.wait()
    for parts in housekeepers.values():
        parts.runner.stop()
        parts.leadership.resign()
        parts.locks.stop()
    for presence in presences:
        with suppress(StoreUnavailable):
            presence.withdraw(name)
    metrics_server.stop()
    tracing.stop()
    log.info("housekeeper %s stopped cleanly", settings.instance_id)
    return 0


def _scripts(settings: Settings) -> Scripts:
    timeout = max(2.0, settings.redis_timeout)
    return Scripts(connect(settings.store_url, timeout=timeout, retries=settings.redis_retries, name="housekeeper"))


def _build_all(settings: Settings, tracing: Tracing) -> dict[int, Parts]:
    """Returns a housekeeper for each store."""
    stores = settings.stores
    if settings.has_one_address:
        return {number: build(each, _scripts(each), tracing) for number, each in stores.items()}
    # One that hangs must not delay the others for long.
    clients = {
        number: Scripts(connect(each.store_url, timeout=OTHERS_TIMEOUT, retries=0, name="stores"))
        for number, each in stores.items()
    }
    return {
        number: build(
            each,
            _scripts(each),
            tracing,
            {stores.label(other): client for other, client in clients.items() if other != number},
            Place(stores=stores, number=number),
        )
        for number, each in stores.items()
    }


def _start_declaring(settings: Settings, housekeepers: Mapping[int, Parts], stop: threading.Event) -> None:
    """Declares the schedules of the file, each in the store of its name."""
    declared = settings.declared_schedules()
    if declared is None:
        return
    for number, parts in housekeepers.items():
        own = [each for each in declared if settings.stores.of_name(each.name) is settings.stores[number]]
        threading.Thread(target=_declare, args=(parts.schedule_store, own, stop), name="declare", daemon=True).start()


def _report(presences: Sequence[Presence], name: str, stop: threading.Event) -> None:
    """Reports that this housekeeper runs, until it stops."""
    while not stop.is_set():
        for each in presences:
            with suppress(StoreUnavailable):
                each.report(name)
        stop.wait(EVERY)


def _release_locks_of_dead(scripts: Scripts, instance: str) -> None:
    """Releases the locks that this instance held when it was killed, so that its jobs do not wait for their expiry."""
    with suppress(StoreUnavailable, *unanswered()):
        if names := LockAdmin(scripts).release_of_dead(instance):
            log.info("released locks of housekeepers that died: %s", ", ".join(names))


def _declare(schedule_store: ScheduleStore, schedules: list[Schedule], stop: threading.Event) -> None:
    """Applies the file's schedules, once, at the start: the last start has the newest file."""
    while not stop.is_set():
        try:
            log.info("schedules of the file: %s", schedule_store.declare(schedules))
            for text in refused_by_types(schedules, TypeCache(TaskTypes(schedule_store.scripts.redis))):
                log.warning("%s", text)
            return
        except StoreUnavailable as error:
            log.warning("the schedules of the file cannot be stored yet: %s", error)
            stop.wait(1)


def refused_by_types(schedules: Sequence[Schedule], types: TypeCache) -> Iterator[str]:
    """Yields which schedules have data that no known version of their type accepts: their tasks become dead letters."""
    for each in schedules:
        try:
            if types.get(each.type):
                types.check(each.type, json.loads(each.data))
        except Refusal as refusal:
            yield f"schedule {each.name}: no version of {each.type} accepts its data: {refusal.detail}"


class _Info(Collector):
    """The identity of this housekeeper."""

    def __init__(self, runner: Housekeeper) -> None:
        self.runner = runner

    def collect(self) -> list[InfoMetricFamily]:
        return [InfoMetricFamily("firmq_housekeeper", "This housekeeper.", {"instance_id": self.runner.instance})]


def _metrics_server(settings: Settings, housekeepers: Mapping[int, Parts]) -> MetricsServer:
    patience = {
        job.name: max(LATE, 3 * job.interval.total_seconds())
        for parts in housekeepers.values()
        for job in parts.runner.jobs
    }

    def check(what: str, ask: Callable[[Housekeeper], dict[str, float | None]], most_troubled: int) -> Check:
        silent = {number: ask(parts.runner) for number, parts in housekeepers.items()}
        troubled = sum(
            any(seconds is None or seconds >= patience[name] for name, seconds in found.items())
            for found in silent.values()
        )
        about = {number: {"leader": housekeepers[number].leadership.leads(), what: silent[number]} for number in silent}
        shown = next(iter(about.values())) if len(about) == 1 else {f"{settings.stores.noun}s": about}
        return Check(troubled <= most_troubled, {"instance": settings.instance_id, **shown})

    try:
        return MetricsServer(
            settings.bind_host,
            settings.housekeeper_metrics_port,
            _registry(housekeepers, settings.stores.noun),
            lambda: check("seconds_since_pass", Housekeeper.silent_seconds, 0),
            lambda: check("seconds_since_answer", Housekeeper.unanswered_seconds, len(housekeepers) - 1),
        )
    except OSError as error:
        port = settings.housekeeper_metrics_port
        exit_with(
            f"port {port} for the housekeeper's metrics cannot be used ({error.strerror}): "
            "free it, or set HOUSEKEEPER_METRICS_PORT to another one (0 takes any free port)"
        )


def _registry(housekeepers: Mapping[int, Parts], noun: str) -> CollectorRegistry:
    """Returns the metrics of the only store, or of all with a label for each."""
    found = next(iter(housekeepers.values())).registry
    if len(housekeepers) > 1:
        found = CollectorRegistry()
        found.register(ByStore(noun, {number: parts.registry for number, parts in housekeepers.items()}))
    ProcessCollector(registry=found)
    return found


def _seconds(value: float) -> timedelta:
    return timedelta(seconds=value)
