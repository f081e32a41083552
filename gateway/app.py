"""Wiring: builds the Flask app from settings and a Redis client. Nothing here is global."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version

from flask import Flask, Response
from redis import Redis
from werkzeug.routing import BaseConverter

from firmq.gateway.auth.authenticator import Authenticator
from firmq.gateway.circuit_breaker import CircuitBreaker
from firmq.gateway.feature import Services, features
from firmq.gateway.http import errors, middleware
from firmq.gateway.http.endpoints import NAME_IN_PATH, Guards, Limits, register
from firmq.gateway.http.openapi import document
from firmq.gateway.metrics import Metrics
from firmq.gateway.metrics_federation import MetricsFederation
from firmq.gateway.readiness import Readiness
from firmq.gateway.routes.audit import AuditRoutes
from firmq.gateway.routes.batch_progress import BatchRoutes
from firmq.gateway.routes.batches import BatchSubmission
from firmq.gateway.routes.dead_letters import DeadLetterRoutes
from firmq.gateway.routes.documentation import Documentation
from firmq.gateway.routes.events import EventRoutes, Poller
from firmq.gateway.routes.health import HealthRoutes
from firmq.gateway.routes.keys import KeyRoutes
from firmq.gateway.routes.limits import LimitRoutes
from firmq.gateway.routes.locks import LockRoutes
from firmq.gateway.routes.metrics import MetricsRoutes
from firmq.gateway.routes.queues import QueueRoutes
from firmq.gateway.routes.schedules import ScheduleRoutes
from firmq.gateway.routes.tasks import Tasks
from firmq.gateway.routes.types import TypeRoutes
from firmq.gateway.routes.waiting import WaitingRoutes
from firmq.gateway.routes.workers import WorkerRoutes
from firmq.gateway.tasks.batch_planner import BatchPlanner
from firmq.gateway.tasks.earlier_tasks import EarlierTaskReader
from firmq.shared.config.settings import Settings
from firmq.shared.domain.redaction import Redaction
from firmq.shared.domain.task import TASK_ID
from firmq.shared.observability.instrumentation import trace_redis, trace_requests
from firmq.shared.observability.tracing import Tracing
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.api_keys import Keyring
from firmq.shared.stores.audit import Audit
from firmq.shared.stores.batches import Batches
from firmq.shared.stores.dead_letters import DeadLetters
from firmq.shared.stores.idempotency import Idempotency
from firmq.shared.stores.limits import Limits as TaskLimits
from firmq.shared.stores.locks import LockAdmin
from firmq.shared.stores.payloads import Payloads
from firmq.shared.stores.queues import Queues
from firmq.shared.stores.schedules import ScheduleStore
from firmq.shared.stores.task_types import TaskTypes
from firmq.shared.stores.tasks import Records, all_records
from firmq.shared.stores.workers import Workers
from firmq.shared.submission.bodies import context_of
from firmq.shared.submission.task_factory import TaskFactory
from firmq.shared.submission.type_cache import TypeCache


class TaskIdConverter(BaseConverter):
    """Matches task ids only; any other text makes the path unknown.

    `/tasks/batch`, `/tasks/outbox` and `/bulk-actions/preview` are excluded because they are paths of their own, with
    their own answer to other methods."""

    regex = f"(?!(?:batch|outbox|preview)$){TASK_ID.pattern}"


class NameConverter(BaseConverter):
    """Matches names; any other text makes the path unknown."""

    regex = NAME_IN_PATH


def create_app(
    settings: Settings,
    redis: Redis,
    *,
    metrics: Metrics | None = None,
    waiters: int = 8,
    tracing: Tracing | None = None,
    authenticator: Authenticator | None = None,
    stopping: threading.Event | None = None,
) -> Flask:
    """Builds the gateway on one Redis client; at most `waiters` requests wait for results at a time.

    With several stores, their apps share the keyword arguments. `stopping` is set when the server stops: waits end.
    """
    app = Flask("firmq.gateway", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = settings.max_body_bytes
    app.config["STOPPING"] = stopping or threading.Event()
    app.url_map.strict_slashes = False
    app.url_map.merge_slashes = False
    app.url_map.converters.update(id=TaskIdConverter, name=NameConverter)
    metrics = metrics or Metrics()
    if tracing is None:
        tracing = Tracing("gateway", settings, f"{socket.gethostname()}-{os.getpid()}")
        trace_redis(tracing)
    trace_requests(app, tracing)
    middleware.install(app, metrics, settings)
    app.register_error_handler(Exception, _problem)
    _add_routes(app, settings, redis, metrics, tracing, waiters, authenticator)
    app.extensions["tracing"] = tracing
    return app


def version() -> str:
    """Returns the version of this product."""
    try:
        return installed_version("firmq")
    except PackageNotFoundError:
        return "development"


def _problem(error: Exception) -> Response:
    return errors.respond(errors.refusal_of(error))


def _add_routes(
    app: Flask,
    settings: Settings,
    redis: Redis,
    metrics: Metrics,
    tracing: Tracing,
    waiters: int,
    authenticator: Authenticator | None,
) -> None:
    keyring = Keyring(settings.api_keys, settings.api_keys_file, others=settings.has_other_keys())
    scripts = Scripts(redis, replicas=settings.submit_replicas, confirm_writes=settings.confirm_writes)
    queues = Queues.of(scripts, settings)
    records = Records(scripts, queues.register, Payloads.of(settings))
    events = EventRoutes(Poller(records, Batches(scripts)), app.config["STOPPING"])
    services = _services(records, queues, settings, metrics, tracing, events)
    circuit_breaker = CircuitBreaker()
    routes = (
        *_routes_of_tasks(services, records, tracing, waiters, app.config["STOPPING"]),
        *_routes_of_system(services, keyring, circuit_breaker, tracing),
        *(each for feature in features() for each in feature.routes(services)),
    )
    guards = Guards(
        limits=_limits(settings),
        circuit_breaker=circuit_breaker,
        authenticator=authenticator
        or Authenticator(
            keyring,
            scripts,
            metrics,
            circuit_breaker,
            other_keys=[found for each in features() if (found := each.keys(settings))],
            redaction=services.redaction,
        ),
        audit=Audit(redis),
    )
    declared = [each for part in routes for each in register(app, part, guards)]
    register(app, Documentation(partial(document, declared, version(), keyring.required)), guards)
    app.extensions["authenticator"] = guards.authenticator


def _services(
    records: Records, queues: Queues, settings: Settings, metrics: Metrics, tracing: Tracing, events: EventRoutes
) -> Services:
    scripts, context = records.scripts, _limits(settings).context
    type_cache = TypeCache(
        TaskTypes(scripts.redis),
        fresh=settings.type_cache_time,
        http_task_policy=settings.http_task_policy(),
        refuse_without_worker=settings.refuse_without_worker,
    )
    admits = partial(queues.register.admits, most=max(1, settings.max_queues // 2))
    return Services(
        settings,
        scripts,
        all_records(records, settings),
        queues,
        DeadLetters(scripts, records, tracing, timedelta(seconds=settings.retention_deleted)),
        type_cache,
        TaskFactory(type_cache, tracing, settings.default_priority, context, records.payloads, scripts.mark, admits),
        metrics,
        Redaction(settings.dashboard_redact),
        events,
        version(),
    )


def _routes_of_tasks(
    services: Services, records: Records, tracing: Tracing, waiters: int, stopping: threading.Event
) -> Iterator[object]:
    settings, scripts, queues, metrics = services.settings, services.scripts, services.queues, services.metrics
    batches = Batches(scripts)
    idempotency = Idempotency(scripts, timedelta(seconds=settings.idempotency_ttl), queues.bounds)
    yield Tasks(
        queues=queues,
        records=services.records,
        type_cache=services.type_cache,
        task_factory=services.task_factory,
        metrics=metrics,
        idempotency=idempotency,
        policy=settings.retry_policy,
        waiters=waiters,
        stopping=stopping,
    )
    yield BatchSubmission(
        BatchPlanner(queues, batches, services.task_factory, metrics, tracing),
        idempotency,
        EarlierTaskReader(records, batches, idempotency, settings.max_body_bytes),
    )
    yield BatchRoutes(batches)
    yield services.events
    yield DeadLetterRoutes(services.dead_letters)


def _routes_of_system(
    services: Services, keyring: Keyring, circuit_breaker: CircuitBreaker, tracing: Tracing
) -> Iterator[object]:
    settings, scripts, queues, metrics = services.settings, services.scripts, services.queues, services.metrics
    types, queue_of_type = services.type_cache, settings.default_priority
    workers = Workers(scripts.redis, settings.lease())
    yield WorkerRoutes(workers)
    yield WaitingRoutes(scripts, queues, workers)
    yield TypeRoutes(types, settings.retry_policy, queues.pauses)
    yield QueueRoutes(queues, queue_of_type)
    yield LimitRoutes(TaskLimits(scripts))
    yield LockRoutes(LockAdmin(scripts))
    yield KeyRoutes(keyring, scripts.redis)
    yield AuditRoutes(Audit(scripts.redis))
    yield ScheduleRoutes(ScheduleStore(scripts, queues.bounds), queues, types, metrics, tracing, queue_of_type)
    ready = Readiness(scripts, types)
    yield HealthRoutes(settings, scripts, ready, version(), circuit_breaker, keyring.required)
    yield MetricsRoutes(metrics, MetricsFederation(settings.metrics_sources), settings.gateway_public_port)


def _limits(settings: Settings) -> Limits:
    context = context_of(settings, signed=True)
    return Limits(json_depth=settings.max_json_depth, context=context)
