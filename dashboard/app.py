"""Builds the Flask app from settings and a Redis client; nothing is global."""

from __future__ import annotations

import hashlib
import os
import socket
from collections import defaultdict
from functools import cache
from importlib.resources import files

from flask import Flask, current_app, render_template, request, url_for
from redis import Redis
from werkzeug.exceptions import HTTPException, InternalServerError, NotFound
from werkzeug.routing import BaseConverter
from werkzeug.utils import find_modules, import_string

from firmq.dashboard import present
from firmq.dashboard.auth import security
from firmq.dashboard.auth.login_throttle import LoginThrottle
from firmq.dashboard.auth.sessions import Sessions
from firmq.dashboard.auth.users import Role, Users
from firmq.dashboard.context import SHOWN, PageContext
from firmq.dashboard.feature import features
from firmq.dashboard.metrics import Metrics
from firmq.dashboard.overview import Overview
from firmq.dashboard.queries import Queries
from firmq.dashboard.stores import open_stores
from firmq.shared.config.settings import Settings
from firmq.shared.domain.decode import moment
from firmq.shared.domain.duration import duration
from firmq.shared.domain.redaction import Redaction
from firmq.shared.domain.sanitize import plain
from firmq.shared.errors import (
    BatchBusy,
    BatchNotFound,
    CorruptRecord,
    FirmqError,
    HistoryUnavailable,
    IllegalTransition,
    LockChanged,
    PayloadUnavailable,
    ScheduleNotFound,
    StoreUnavailable,
    TaskNotFound,
    TooManyAtOnce,
)
from firmq.shared.observability.instrumentation import trace_redis, trace_requests
from firmq.shared.observability.tracing import Tracing
from firmq.shared.stores.audit import AuditEntry
from firmq.shared.submission.refusals import body_too_large


class PlainName(BaseConverter):
    """A name or an id in a URL. Redis keys are built from it, so it has no colon, which would lead to other keys."""

    regex = "[^/:]{1,200}"


def create_app(
    settings: Settings,
    redis: Redis,
    users: Users,
    *,
    first: PageContext | None = None,
) -> Flask:
    """Returns the dashboard, wired to one Redis client.

    With several stores `first` is the context of the first one, which has the sessions of all.
    """
    accounts = first.stores.redis if first else redis
    app = Flask("firmq.dashboard", root_path=str(files("firmq.dashboard")))
    app.url_map.strict_slashes = False
    app.url_map.converters["default"] = PlainName
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    tracing = Tracing("dashboard", settings, f"{socket.gethostname()}-{os.getpid()}")
    # Only changes are traced, not the refreshes of open pages.
    trace_requests(app, tracing, methods=("POST",))
    trace_redis(tracing)
    metrics = first.metrics if first else Metrics()
    metrics.install(app)
    stores = open_stores(settings, redis, tracing)
    redaction = Redaction(settings.dashboard_redact)
    context = PageContext(
        settings=settings,
        stores=stores,
        queries=Queries(stores, Overview(stores, metrics, settings), redaction),
        redaction=redaction,
        metrics=metrics,
        users=users,
        sessions=Sessions(accounts, users, settings.dashboard_session, settings.dashboard_idle),
        login_throttle=first.login_throttle if first else LoginThrottle(users),
    )
    app.extensions["page_context"] = context
    security.install(app, settings, users, context.sessions, accounts)
    for page in find_modules("firmq.dashboard.pages"):
        app.register_blueprint(import_string(page).blueprint)
    app.extensions["features"] = {}
    for feature in features():
        if feature.blueprint:
            app.register_blueprint(feature.blueprint)
        with app.app_context():
            app.extensions["features"][feature.name] = feature.open(context)
    _teach_templates(app, context)
    _register_errors(app)
    return app


def _teach_templates(app: Flask, context: PageContext) -> None:
    app.jinja_env.filters.update(
        plain=plain,
        clip=present.clip,
        duration=duration,
        ago=present.ago,
        exact=present.exact,
        moment=moment,
        size=present.size,
    )

    slots, more_pages = defaultdict[str, list[str]](list), defaultdict[str, list[tuple[str, str]]](list)
    for feature in features():
        for place, template in feature.slots.items():
            slots[place].append(template)
        for section, path, name in feature.navigation if feature.in_menu(context.settings) else ():
            more_pages[section].append((path, name))
    links = [feature.audit_link for feature in features() if feature.audit_link]

    def audit_link(entry: AuditEntry) -> str:
        return next(filter(None, (link(entry.what, entry.about) for link in links)), "")

    app.jinja_env.globals.update(
        slots=slots, more_pages=more_pages, features=app.extensions["features"], audit_link=audit_link
    )

    @app.context_processor
    def common() -> dict[str, object]:
        theme = request.cookies.get("theme", "")
        return {
            "csrf_token": security.csrf_token,
            "asset": _asset,
            "may": lambda role: security.person().may(Role[role.upper()]),
            "theme": theme if theme in ("light", "dark") else "",
            "previews": context.queries.previews,
            "refresh": context.settings.dashboard_refresh,
            "sign_in_required": context.users.required,
            "store": request.environ.get(SHOWN, ""),
        }


def _asset(name: str) -> str:
    """Returns the URL of a static file; it changes with the file's content."""
    return url_for("static", filename=name, v=_fingerprint(name))


@cache
def _fingerprint(name: str) -> str:
    return hashlib.sha256((files("firmq.dashboard") / "static" / name).read_bytes()).hexdigest()[:12]


_MISSING: dict[type[FirmqError], tuple[str, str]] = {
    TaskNotFound: ("task", "It never existed, or its record was removed at the end of its retention."),
    BatchNotFound: ("batch", "It never existed, or all its tasks have been removed."),
    ScheduleNotFound: ("schedule", "It never existed, or it was deleted."),
}
_CONFLICTS = (CorruptRecord, BatchBusy, IllegalTransition, LockChanged, TooManyAtOnce)
_FAILED = "The action failed"
AGAIN = 5
"""Seconds after which a page that cannot be shown is requested again."""


def _register_errors(app: Flask) -> None:
    @app.errorhandler(StoreUnavailable)
    def unavailable(error: StoreUnavailable) -> tuple[str, int, dict[str, str]]:
        what = "The history" if isinstance(error, HistoryUnavailable) else request.environ.get(SHOWN, "Redis")
        # An open page shows it when it is over.
        again = AGAIN if request.method == "GET" else 0
        headers = {"Retry-After": "2"} | ({"Refresh": str(again)} if again else {})
        return *_apology(503, f"{what} cannot be reached", str(error), again), headers

    @app.errorhandler(PayloadUnavailable)
    def without_payload(error: PayloadUnavailable) -> tuple[str, int]:
        return _apology(503, "The payload store cannot be used", str(error))

    @app.errorhandler(HTTPException)
    def http(error: HTTPException) -> tuple[str, int]:
        if error.description == NotFound.description:
            return _apology(404, "There is no such page", "The URL is wrong, or the page was removed.")
        title = _FAILED if error.code == 400 and request.method == "POST" else error.name
        return _apology(error.code or 500, title, error.description or "")

    @app.errorhandler(Exception)
    def broken(error: Exception) -> tuple[str, int]:
        app.logger.error("a page failed", exc_info=error, extra={"path": request.path[:256]})
        return http(InternalServerError("Internal error of the dashboard; see its log for details."))

    @app.errorhandler(FirmqError)
    def refused(error: FirmqError) -> tuple[str, int]:
        if type(error) in _MISSING:
            what, reason = _MISSING[type(error)]
            return _apology(404, f"There is no such {what}", reason)
        status, title = (503, "Too many requests") if isinstance(error, TooManyAtOnce) else (409, _FAILED)
        return _apology(status, title, str(error)) if isinstance(error, _CONFLICTS) else broken(error)


def _apology(status: int, title: str, text: str, again: int = 0) -> tuple[str, int]:
    """Returns a page about an error; `again` is in how many seconds the browser tries again."""
    text = body_too_large(current_app.config["MAX_CONTENT_LENGTH"]) if status == 413 else text
    return render_template("error.html", status=status, title=title, text=text, again=again), status
