"""Wires a worker together and runs it until it is stopped."""

from __future__ import annotations

import logging
import os
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version

from prometheus_client import CollectorRegistry, ProcessCollector
from redis.exceptions import RedisError

from shared.config import foreign_names
from shared.config.collector import announce
from shared.config.settings import Settings, exit_with, load_or_exit
from shared.domain.limit import Limit
from shared.domain.task import WEBHOOK_TYPE, TaskState
from shared.errors import TaskQueueError
from shared.http.bind import raise_file_limit
from shared.http.metrics_server import Check, MetricsServer
from shared.observability import logs
from shared.observability.tracing import Tracing
from shared.redis.client import connect
from shared.redis.scripts import Scripts
from shared.redis.startup_check import exit_if_unusable
from shared.stores.limits import Limits
from shared.stores.task_types import TaskType, TaskTypes
from shared.stores.workers import BUSY_HEARTBEAT, HEARTBEAT, QueueExecutors, RunningTask, WorkerInfo, Workers
from worker.engine.claimed_task import ClaimedTask
from worker.engine.loop import Engine, forward_signals
from worker.engine.notifications import Notifications
from worker.engine.redis_session import RedisSession
from worker.executors.crash_reports import CrashReports
from worker.executors.monitor import ExecutorMonitor
from worker.executors.pool import CannotStart, ExecutorPool
from worker.executors.tracing import SpanForwarder
from worker.executors.watchdog import Watchdog
from worker.metrics import Holdings, HoldingsMetrics, WorkerMetrics

log = logging.getLogger(__name__)

RQ_VERSION = version("rq")
"""The version for RQ's tools. RQ itself is not imported, so that the worker starts sooner."""
MISSED_HEARTBEAT = 0.5
"""Seconds from a failed heartbeat to the next one."""


@dataclass(slots=True)
class Heartbeat:
    """Writes the worker's state to Redis every few seconds, and when `due` is set."""

    engine: Engine
    due: threading.Event
    name: str
    workers: Workers
    types: TaskTypes
    limits: Limits
    started_at: datetime
    published: str = ""
    busy: bool = False
    completed: int = 0
    stopped: bool = False
    overruled: set[tuple[str, Limit]] = field(default_factory=set)

    def start(self) -> threading.Thread:
        thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        while not self.stopped:
            self.due.clear()
            self.engine.liveness.announced_at = time.monotonic()
            away = False
            try:
                self.beat()
            except (RedisError, OSError, TaskQueueError) as error:
                away = True
                log.debug("heartbeat failed: %s", error)
            except Exception:
                # A worker without heartbeats would look dead, and its limits would lapse.
                log.exception("heartbeat failed")
            self.due.wait(self._pause(away))

    def _pause(self, away: bool) -> float:
        """Returns the seconds until the next heartbeat: after an outage, before the grace for silent workers ends."""
        if not self.published:
            return 0.05  # the gateway accepts no task of a type that is not published
        if away:
            return MISSED_HEARTBEAT
        return BUSY_HEARTBEAT if self.busy else HEARTBEAT

    def stop(self) -> None:
        self.stopped = True
        self.due.set()

    def beat(self) -> None:
        info = self.info()
        self.busy = info.state != "idle" or info.completed != self.completed
        self.completed = info.completed
        pool, draining = self.engine.pool, self.engine.draining_until is not None
        types, names = pool.types, pool.type_set
        if names is None or draining:
            self.workers.announce(info)
            return
        if not self.workers.announce(info, names.digest):
            # Redis is new, came back empty, or removed a set that was unused for long.
            self.types.publish_set(names, info.host)
            self.workers.announce(info, names.digest)
        self._declare(types.values(), first=self.published != names.digest)
        self.published = names.digest
        self.engine.on_types_published()

    def _declare(self, types: Iterable[TaskType], first: bool) -> None:
        """Declares the limits of handlers and settings; a different declaration of another version is logged once.

        That a type has no limit is declared once: ten thousand types would repeat it for ever.
        """
        # Housekeeping limits webhook deliveries, because it knows all workers.
        handlers = {f"type:{each.name}": each.limit for each in types if each.name != WEBHOOK_TYPE}
        if not first:
            handlers = {name: limit for name, limit in handlers.items() if limit}
        others = self.limits.declare(handlers, self.engine.settings.declared_limits(), first=first)
        for name, limit in others.items() - self.overruled:
            log.warning("limit %s: overridden by %s, declared by a worker that started later", name, limit)
            self.overruled.add((name, limit))

    def holdings(self) -> Holdings:
        """Returns what this worker holds now; used by the heartbeat and the metrics."""
        pool = list(self.engine.pool.members)
        return Holdings(
            executors=len(pool),
            held=len(self.engine.ready) + sum(len(executor.assigned) for executor in pool),
            memory_bytes=sum(executor.memory_bytes() for executor in pool),
        )

    def info(self) -> WorkerInfo:
        metrics, pool, slots = self.engine.metrics, list(self.engine.pool.members), self.engine.slots
        now = time.monotonic()
        running = [(executor, held) for executor in pool if (held := _first(executor.assigned))]
        holdings = self.holdings()
        return WorkerInfo(
            name=self.name,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=RQ_VERSION,
            queues=tuple(self.engine.settings.claimed_queues),
            executors=holdings.executors,
            started_at=self.started_at,
            state="draining" if self.engine.draining_until else "busy" if running else "idle",
            held=holdings.held,
            completed=metrics.total(TaskState.COMPLETED),
            failed=metrics.total(TaskState.FAILED),
            retried=metrics.retries,
            crashed=metrics.crashes,
            lost=metrics.leases_lost,
            busy_seconds=round(metrics.busy_seconds, 3),
            memory_bytes=holdings.memory_bytes,
            running=tuple(
                RunningTask(id=held.id.decode(), type=held.name, seconds=round(now - executor.began_at, 3))
                for executor, held in running
            ),
            queue_executors=tuple(
                QueueExecutors(queue=queue, in_use=in_use, limit=slots.limits[queue])
                for queue, in_use in slots.in_use().items()
            ),
        )


def _first(assigned: Mapping[int, ClaimedTask]) -> ClaimedTask | None:
    """Returns the first of a mapping that another thread may change."""
    try:
        return next(iter(assigned.values()), None)
    except RuntimeError:
        return None


def main() -> int:
    """`python -m worker`."""
    settings = load_or_exit()
    name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"
    logs.configure("worker", settings.log_level, settings.log_format, instance=name, in_background=True)
    foreign_names.warn()
    announce(settings)
    raise_file_limit()
    exit_if_unusable(settings.store_url)
    metrics = WorkerMetrics(name)
    tracing = Tracing("worker", settings, name)
    heartbeat_due = threading.Event()
    engine = _build(settings, name, metrics, SpanForwarder(tracing), heartbeat_due)
    heartbeat = Heartbeat(
        engine=engine,
        due=heartbeat_due,
        name=name,
        workers=Workers(connect(settings.store_url, name=f"heartbeat-{name}")),
        types=TaskTypes(connect(settings.store_url, name=f"types-{name}")),
        limits=Limits(Scripts(connect(settings.store_url, name=f"limits-{name}"))),
        started_at=datetime.now(UTC),
    )
    metrics_server = _metrics_server(settings, engine, heartbeat, metrics)
    forward_signals(engine, settings.drain_grace)
    metrics_server.start()
    heartbeat.start()
    log.info("worker %s: %d executors, queues %s", name, settings.executors, ", ".join(settings.claimed_queues))
    _warn_of_queue_executors(settings)
    try:
        engine.run()
    except CannotStart as error:
        exit_with(str(error))
    finally:
        engine.notifications.close()
        _shut_down(heartbeat)
        tracing.stop()
    log.info("worker %s ended in order", name)
    return 0


def _warn_of_queue_executors(settings: Settings) -> None:
    """Logs that the bounded queues can take every executor from the others."""
    limits = settings.claimed_queue_executors
    others = settings.claimed_queues.keys() - limits.keys()
    if limits and others and sum(limits.values()) >= settings.executors:
        log.warning(
            "QUEUE_EXECUTORS lets %s use all %d executors of this worker, which leaves none free for %s: "
            "set it lower, or WORKER_EXECUTORS higher",
            " and ".join(limits),
            settings.executors,
            ", ".join(sorted(others)),
        )


def _build(
    settings: Settings, name: str, metrics: WorkerMetrics, spans: SpanForwarder, heartbeat_due: threading.Event
) -> Engine:
    # An answer must come well within a lease, or the lease ends during the wait.
    answer_within = min(max(2.0, settings.redis_timeout), settings.lease_time / 5)
    redis = connect(settings.store_url, timeout=answer_within, name=f"worker-{name}")
    # Only connecting blocks, and that takes less than the margin of leases.
    waiting = connect(settings.store_url, timeout=answer_within / 4, retries=0, name=f"waiting-{name}")
    selector = selectors.DefaultSelector()
    session = RedisSession(Scripts(redis), name, settings.claimed_queues, settings.lease_time, answer_within)
    pool = ExecutorPool(name, settings, selector, heartbeat_due, Watchdog(settings.lease_time, session.margin))
    crash_reports = CrashReports(name, settings.retry_policy, settings.max_crashes, pool)
    return Engine(
        settings,
        session,
        pool,
        ExecutorMonitor(settings, pool, session, crash_reports, metrics, spans),
        metrics,
        Notifications(waiting, name, settings.claimed_queues, selector),
        selector,
        heartbeat_due,
    )


def _metrics_server(settings: Settings, engine: Engine, heartbeat: Heartbeat, metrics: WorkerMetrics) -> MetricsServer:
    registry = CollectorRegistry()
    registry.register(metrics)
    registry.register(HoldingsMetrics(heartbeat.holdings))
    ProcessCollector(registry=registry)

    def live() -> Check:
        troubles = engine.liveness.troubles()
        return Check(not troubles, {"worker": heartbeat.name, "troubles": troubles})

    def ready() -> Check:
        well = engine.pool.ready and bool(heartbeat.published) and engine.outage_since is None
        state = "draining" if engine.draining_until else "ready" if well else "starting or without Redis"
        return Check(well and not engine.draining_until, {"worker": heartbeat.name, "state": state})

    try:
        return MetricsServer(settings.bind_host, settings.worker_metrics_port, registry, live, ready)
    except OSError as error:
        exit_with(
            f"port {settings.worker_metrics_port} for the worker's metrics cannot be used ({error.strerror}): "
            "free it, or set WORKER_METRICS_PORT to another one (0 takes any free port)"
        )


def _shut_down(heartbeat: Heartbeat) -> None:
    heartbeat.stop()
    heartbeat.engine.pool.shutdown()
    try:
        heartbeat.workers.farewell(heartbeat.info())
    except (RedisError, OSError) as error:
        log.warning("deregistration failed: %s", error)
