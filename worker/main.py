"""Wires a worker together and runs it until it is stopped."""

from __future__ import annotations

import logging
import os
import secrets
import selectors
import socket
import threading
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from redis.exceptions import RedisError

from firmq.shared.config import foreign_names
from firmq.shared.config.collector import announce
from firmq.shared.config.settings import Settings, exit_with, load_or_exit
from firmq.shared.http.bind import raise_file_limit
from firmq.shared.http.metrics_server import Check, MetricsServer
from firmq.shared.observability import logs
from firmq.shared.observability.tracing import Tracing
from firmq.shared.redis.client import connect, keys_of
from firmq.shared.redis.scripts import Scripts
from firmq.shared.redis.startup_check import exit_if_unusable
from firmq.shared.stores.limits import Limits
from firmq.shared.stores.task_types import TaskTypes
from firmq.shared.stores.workers import Workers
from firmq.worker import start_hooks
from firmq.worker.engine.claimed_queues import ClaimedQueues
from firmq.worker.engine.lane import SLOW, ConcurrentLane, Lanes, SerialLane
from firmq.worker.engine.lane_claims import LaneClaims
from firmq.worker.engine.link import HeartbeatsDue, StoreLink
from firmq.worker.engine.loop import Engine, forward_signals
from firmq.worker.engine.notifications import Notifications
from firmq.worker.engine.redis_session import RedisSession
from firmq.worker.executors.crash_reports import CrashReports
from firmq.worker.executors.monitor import ExecutorMonitor
from firmq.worker.executors.pool import CannotStart, ExecutorPool
from firmq.worker.executors.tracing import SpanForwarder
from firmq.worker.executors.watchdog import Watchdog
from firmq.worker.feature import NAME, Background, Beside, features
from firmq.worker.handlers.hooks import HOOKS, WorkerContext
from firmq.worker.handlers.registry import HandlerError
from firmq.worker.heartbeat import Heartbeat
from firmq.worker.metrics import HoldingsMetrics, WorkerMetrics

log = logging.getLogger(__name__)


def main() -> int:
    """Runs `firmq worker`."""
    settings = load_or_exit()
    for feature in features():
        if feature.prepare:
            feature.prepare(settings)
    name = os.environ.pop(NAME, "") or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"
    logs.configure(
        "worker",
        settings.log_level,
        settings.log_format,
        instance=name,
        app_version=settings.app_version,
        in_background=True,
        export=settings.log_export,
    )
    foreign_names.warn(settings)
    announce(settings)
    raise_file_limit()
    for each in settings.stores.values():
        exit_if_unusable(each.store_url)
    about = WorkerContext(name=name, queues=settings.queue_selection.entries)
    _start_hooks(about, settings)
    metrics = WorkerMetrics(name)
    tracing = Tracing("worker", settings, name)
    heartbeat_due = HeartbeatsDue()
    engine = _build(settings, name, metrics, SpanForwarder(tracing), heartbeat_due)
    heartbeats = [_heartbeat(settings.stores[link.number], engine, link, name) for link in engine.links]
    heartbeat_due.events += [each.due for each in heartbeats]
    metrics_server = _metrics_server(settings, engine, heartbeats, metrics)
    forward_signals(engine, settings.drain_grace)
    metrics_server.start()
    for heartbeat in heartbeats:
        heartbeat.start()
    log.info("worker %s: %d executors, queues %s", name, settings.executors, settings.queue_selection)
    _warn_of_queue_executors(settings)
    beside = _start_beside(settings, name, engine)
    try:
        engine.run()
    except CannotStart as error:
        exit_with(str(error))
    finally:
        for started in beside:
            started.stop()
        engine.close()
        _shut_down(engine, heartbeats)
        start_hooks.run_stopping(HOOKS.worker_stopping, about, _run_coroutine, settings.hook_timeout)
        tracing.stop()
    log.info("worker %s stopped cleanly", name)
    return 0


def _heartbeat(settings: Settings, engine: Engine, link: StoreLink, name: str) -> Heartbeat:
    url = settings.store_url
    return Heartbeat(
        engine=engine,
        link=link,
        due=threading.Event(),
        name=name,
        workers=Workers(connect(url, name=f"heartbeat-{name}")),
        types=TaskTypes(connect(url, name=f"types-{name}")),
        limits=Limits(Scripts(connect(url, name=f"limits-{name}"))),
        started_at=datetime.now(UTC),
    )


def _start_beside(settings: Settings, name: str, engine: Engine) -> list[Background]:
    """Starts what features run beside this worker."""
    worker = Beside(settings=settings, name=name, draining=lambda: engine.draining_until is not None)
    starts = [feature.beside for feature in features() if feature.beside]
    return [started for start in starts if (started := start(worker))]


def _start_hooks(about: WorkerContext, settings: Settings) -> None:
    try:
        start_hooks.load(settings.worker_hook_modules)
        start_hooks.run_started(HOOKS.worker_started, about, _run_coroutine, settings.hook_timeout)
    except (HandlerError, start_hooks.HookFailed) as error:
        exit_with(f"{error}: the worker does not start without its hooks")


def _run_coroutine(coroutine: Coroutine[Any, Any, object]) -> object:
    import asyncio  # rarely needed, and large

    return asyncio.run(coroutine)


def _warn_of_queue_executors(settings: Settings) -> None:
    """Logs that the bounded queues can take every executor from the others."""
    limits = settings.claimed_queue_executors
    selection = settings.queue_selection
    others = {*selection.names, *selection.patterns} - limits.keys()
    if limits and others and sum(limits.values()) >= settings.executors:
        log.warning(
            "QUEUE_EXECUTORS lets %s use all %d executors of this worker, which leaves none free for %s: "
            "set it lower, or WORKER_EXECUTORS higher",
            " and ".join(limits),
            settings.executors,
            ", ".join(sorted(others)),
        )


def _build(
    settings: Settings, name: str, metrics: WorkerMetrics, spans: SpanForwarder, heartbeat_due: HeartbeatsDue
) -> Engine:
    selector = selectors.DefaultSelector()
    links = [_link(settings.stores[number], number, name, selector) for number in _from_home(settings)]
    margin = links[0].session.margin
    pool = ExecutorPool(name, settings, selector, heartbeat_due, Watchdog(settings.lease_time, margin))
    serial = SerialLane(pool, settings.claimed_queue_executors, settings.max_crashes)
    lanes = Lanes(serial, ConcurrentLane(pool))
    if len(links) > 1:
        for lane in lanes:
            lane.stays_parked = SLOW
    crash_reports = CrashReports(name, settings.retry_policy, settings.max_crashes, pool, settings.app_version)
    monitor = ExecutorMonitor(settings, pool, lanes, margin, crash_reports, metrics, spans)
    return Engine(settings, links, pool, monitor, metrics, selector, heartbeat_due)


def _from_home(settings: Settings) -> list[int]:
    """Returns the numbers of the stores, the home of this worker first: workers that start take turns."""
    numbers, turn = list(settings.stores), os.getpid()
    for own in settings.stores.values() if len(numbers) > 1 else ():
        with suppress(RedisError, OSError), connect(own.store_url, timeout=1.0, retries=0, name="home") as redis:
            turn = int(redis.incr(keys_of(redis).WORKERS_STARTED))
            break
    at = turn % len(numbers)
    return [*numbers[at:], *numbers[:at]]


def _link(settings: Settings, number: int, name: str, selector: selectors.BaseSelector) -> StoreLink:
    # An answer must come well within a lease, or the lease ends during the wait.
    answer_within = min(max(2.0, settings.redis_timeout), settings.lease_time / 5)
    redis = connect(settings.store_url, timeout=answer_within, name=f"worker-{name}")
    # Only connecting blocks, and that takes less than the margin of leases.
    waiting = connect(settings.store_url, timeout=answer_within / 4, retries=0, name=f"waiting-{name}")
    session = RedisSession(Scripts(redis), name, settings.lease_time, answer_within, number)
    queues = ClaimedQueues(settings.queue_selection)
    scores = settings.worker_min_score, settings.worker_max_score
    claims = {lane.suffix: LaneClaims(name, queues, lane.suffix, scores) for lane in (SerialLane, ConcurrentLane)}
    return StoreLink(session, claims, Notifications(waiting, name, queues, selector), number)


def _metrics_server(
    settings: Settings, engine: Engine, heartbeats: Sequence[Heartbeat], metrics: WorkerMetrics
) -> MetricsServer:
    registry, name = CollectorRegistry(), heartbeats[0].name
    registry.register(metrics)
    registry.register(HoldingsMetrics(heartbeats[0].holdings))
    ProcessCollector(registry=registry)

    def live() -> Check:
        troubles = engine.liveness.troubles()
        return Check(not troubles, {"worker": name, "troubles": troubles})

    def ready() -> Check:
        trouble = engine.pool.trouble
        well = engine.pool.ready and any(each.published for each in heartbeats) and engine.reaches_redis and not trouble
        waiting = trouble or "starting or without Redis"
        state = "draining" if engine.draining_until else "ready" if well else waiting
        return Check(well and not engine.draining_until, {"worker": name, "state": state})

    try:
        return MetricsServer(settings.bind_host, settings.worker_metrics_port, registry, live, ready)
    except OSError as error:
        exit_with(
            f"port {settings.worker_metrics_port} for the worker's metrics cannot be used ({error.strerror}): "
            "free it, or set WORKER_METRICS_PORT to another one (0 takes any free port)"
        )


def _shut_down(engine: Engine, heartbeats: Sequence[Heartbeat]) -> None:
    for heartbeat in heartbeats:
        heartbeat.stop()
    engine.pool.shutdown()
    for heartbeat in heartbeats:
        try:
            heartbeat.workers.farewell(heartbeat.info())
        except (RedisError, OSError) as error:
            log.warning("deregistration failed: %s", error)
