"""Builds the Flask app from settings and a Redis client; nothing is global."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from flask import Flask, render_template, request, url_for
from redis import Redis
from werkzeug.exceptions import HTTPException, InternalServerError, NotFound
from werkzeug.routing import BaseConverter

from dashboard import present
from dashboard.actions import Actions, Refused
from dashboard.auth import security
from dashboard.auth.sessions import Sessions
from dashboard.auth.users import Role, Users
from dashboard.background import Background
from dashboard.explain.status import waiting_for
from dashboard.metrics import Metrics
from dashboard.overview import OverviewCache
from dashboard.pages import (
    audit,
    batches,
    bulk,
    dead_letters,
    health,
    limits,
    locks,
    metrics,
    overview,
    queues,
    schedules,
    sign_in,
    task,
    tasks,
    workers,
)
from dashboard.present import Redaction
from dashboard.queries import Queries
from shared.config.settings import Settings
from shared.domain.sanitize import plain
from shared.errors import (
    BatchBusy,
    BatchNotFound,
    CorruptRecord,
    IllegalTransition,
    LockChanged,
    ScheduleNotFound,
    StoreUnavailable,
    TaskNotFound,
    TaskQueueError,
)
from shared.observability.instrumentation import trace_redis, trace_requests
from shared.observability.tracing import Tracing
from shared.redis.scripts import Scripts
from shared.stores.audit import Audit
from shared.stores.bulk_actions import BulkActions
from shared.stores.dead_letters import DeadLetters
from shared.stores.failure_groups import FailureGroups
from shared.stores.queues import Queues
from shared.stores.task_types import TaskTypes
from shared.stores.tasks import Records
from shared.stores.workers import Workers


@dataclass(frozen=True, slots=True)
class PageContext:
    """The dependencies of the pages."""

    settings: Settings
    users: Users
    sessions: Sessions
    queries: Queries
    actions: Actions
    redaction: Redaction


class PlainName(BaseConverter):
    """A name or an id in a URL. Redis keys are built from it, so it has no colon, which would lead to other keys."""

    regex = "[^/:]{1,200}"


def create_app(settings: Settings, redis: Redis, users: Users) -> Flask:
    """Returns the dashboard, wired to one Redis client."""
    app = Flask("dashboard", root_path=str(files("dashboard")))
    app.url_map.strict_slashes = False
    app.url_map.converters["default"] = PlainName
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    tracing = Tracing("dashboard", settings, f"{socket.gethostname()}-{os.getpid()}")
    # Only changes are traced, not the refreshes of open pages.
    trace_requests(app, tracing, methods=("POST",))
    trace_redis(tracing)
    counted = Metrics()
    counted.install(app)
    context = _page_context(app, settings, redis, users, counted, tracing)
    security.install(app, settings, users, context.sessions, redis)
    pages = (
        overview,
        tasks,
        task,
        batches,
        dead_letters,
        bulk,
        queues,
        limits,
        workers,
        locks,
        schedules,
        audit,
        sign_in,
    )
    for page in pages:
        app.register_blueprint(page.page(context))
    app.register_blueprint(health.page(redis, users.required))
    app.register_blueprint(metrics.page(counted))
    _teach_templates(app, context)
    _register_errors(app)
    return app


def _page_context(
    app: Flask, settings: Settings, redis: Redis, users: Users, counted: Metrics, tracing: Tracing
) -> PageContext:
    scripts = Scripts(redis, confirm_writes=settings.confirm_writes)
    queues_ = Queues(scripts, settings.queues)
    records = Records(scripts, tuple(settings.queues))
    types = TaskTypes(redis)
    dead = DeadLetters(scripts, records, tracing)
    bulks = BulkActions(scripts, dead)
    record = Audit(redis)
    crew = Workers(redis, settings.lease())
    overview_cache = OverviewCache(redis, queues_, records, crew, types, counted)
    queries = Queries(redis, overview_cache, records, FailureGroups(scripts), bulks, record)
    redaction = Redaction(settings.dashboard_redact)
    depth, egress_policy = settings.max_json_depth, settings.egress_policy()
    actions = Actions(scripts, queues_, dead, bulks, types, crew, record, queries, redaction, depth, egress_policy)
    app.extensions["queries"] = queries
    app.extensions["background"] = Background(overview_cache, bulks)
    sessions = Sessions(redis, settings.dashboard_session)
    return PageContext(settings, users, sessions, queries, actions, redaction)


def _teach_templates(app: Flask, context: PageContext) -> None:
    app.jinja_env.filters.update(
        plain=plain,
        clip=present.clip,
        duration=present.duration,
        ago=present.ago,
        exact=present.exact,
        size=present.size,
        pretty=present.pretty,
        waiting_for=waiting_for,
    )

    @app.context_processor
    def common() -> dict[str, object]:
        return {
            "csrf_token": security.csrf_token,
            "asset": _asset,
            "may": lambda role: security.person().may(Role[role.upper()]),
            "theme": _theme(),
            "refresh": context.settings.dashboard_refresh,
            "sign_in_required": context.users.required,
        }


def _theme() -> str:
    wanted = request.cookies.get("theme", "")
    return wanted if wanted in ("light", "dark") else ""


def _asset(name: str) -> str:
    """Returns the URL of a static file; it changes with the file's content."""
    return url_for("static", filename=name, v=_fingerprint(name))


@cache
def _fingerprint(name: str) -> str:
    return hashlib.sha256((files("dashboard") / "static" / name).read_bytes()).hexdigest()[:12]


_MISSING: Mapping[type[TaskQueueError], tuple[str, str]] = {
    TaskNotFound: ("task", "It never existed, or its record was removed at the end of its retention."),
    BatchNotFound: ("batch", "It never existed, or all its tasks have been removed."),
    ScheduleNotFound: ("schedule", "It never existed, or it was deleted."),
}


def _register_errors(app: Flask) -> None:
    def unavailable(error: StoreUnavailable) -> tuple[str, int, dict[str, str]]:
        return _apology(503, "Redis cannot be reached", str(error)), 503, {"Retry-After": "2"}

    def missing(error: TaskQueueError) -> tuple[str, int]:
        what, explain = _MISSING[type(error)]
        return _apology(404, f"There is no such {what}", explain), 404

    def conflict(error: TaskQueueError) -> tuple[str, int]:
        status = 400 if isinstance(error, Refused) else 409
        return _apology(status, "The action failed", str(error)), status

    def http(error: HTTPException) -> tuple[str, int]:
        status = error.code or 500
        if error.description == NotFound.description:
            return _apology(404, "There is no such page", "The URL is wrong, or the page was removed."), 404
        return _apology(status, error.name, str(error.description or "")), status

    def broken(error: Exception) -> tuple[str, int]:
        app.logger.error("a page failed", exc_info=error, extra={"path": request.path[:256]})
        return http(InternalServerError("Internal error of the dashboard; see its log for details."))

    app.register_error_handler(StoreUnavailable, unavailable)
    for each in _MISSING:
        app.register_error_handler(each, missing)
    app.register_error_handler(CorruptRecord, conflict)
    app.register_error_handler(BatchBusy, conflict)
    app.register_error_handler(IllegalTransition, conflict)
    app.register_error_handler(LockChanged, conflict)
    app.register_error_handler(Refused, conflict)
    app.register_error_handler(HTTPException, http)
    app.register_error_handler(Exception, broken)


def _apology(status: int, title: str, text: str) -> str:
    return render_template("error.html", status=status, title=title, text=text)
