"""Wraps every request: request id, trace, response headers, log line and metrics.

Refuses requests that a page of another site makes a browser send."""

from __future__ import annotations

import logging
import re
import time
from secrets import token_hex
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from flask import Response, current_app, g, request

from firmq.gateway.http.across import PART
from firmq.gateway.http.errors import FOREIGN
from firmq.shared.domain.traceparent import checked, trace_id
from firmq.shared.http.bind import answers_to, is_loopback
from firmq.shared.observability.tracing import log_fields
from firmq.shared.submission.refusals import Refusal

if TYPE_CHECKING:
    from flask import Flask

    from firmq.gateway.metrics import Metrics
    from firmq.shared.config.settings import Settings

log = logging.getLogger("firmq.gateway.access")

_REQUEST_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HEADERS = (
    ("X-Content-Type-Options", "nosniff"),
    ("Cache-Control", "no-store"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Frame-Options", "DENY"),
)
_LOCKED_DOWN = "default-src 'none'; frame-ancestors 'none'"
_QUIET = ("/health", "/metrics")


def install(app: Flask, metrics: Metrics, settings: Settings) -> None:
    """Installs the middleware around every request of the app."""

    @app.before_request
    def begin() -> None:
        g.started = time.perf_counter()
        g.request_id = _request_id(request.headers.get("X-Request-ID"))
        g.trace_parent = checked(request.headers.get("traceparent"))
        _check_host(settings)
        if request.method not in ("GET", "HEAD", "OPTIONS"):
            _check_origin()

    @app.after_request
    def end(response: Response) -> Response:
        _add_headers(response)
        if request.environ.get(PART):
            return response
        seconds = time.perf_counter() - g.started
        metrics.answered(_route(), _method(), response.status_code, seconds)
        _write_line(response.status_code, seconds)
        return response


def _check_host(settings: Settings) -> None:
    """Prevents DNS rebinding by a page whose host name points at this machine. Raises Refusal."""
    host = request.headers.get("Host", "localhost")
    if answers_to(host, settings.bind_host, settings.allowed_hosts):
        return
    if is_loopback(settings.bind_host):
        raise Refusal(
            FOREIGN,
            "this gateway listens on loopback and answers only to names of this machine: use localhost, or add the "
            "host to ALLOWED_HOSTS",
        )
    if not current_app.extensions["authenticator"].keyring.required:
        raise Refusal(
            FOREIGN,
            "without API keys, this gateway refuses unknown host names, which a page of another site could point "
            "here: use an address, or add the host to ALLOWED_HOSTS if it is yours",
        )


def _check_origin() -> None:
    """Refuses changes that a browser sends for a page of another site. Raises Refusal.

    Other clients do not send these headers.
    """
    origin = request.headers.get("Origin")
    foreign = request.headers.get("Sec-Fetch-Site") == "cross-site"
    if foreign or (origin is not None and _netloc(origin) != request.headers.get("Host", "").lower()):
        raise Refusal(FOREIGN, "a page of another site sent this: only pages from this address may make changes")


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def _request_id(given: str | None) -> str:
    return given if given and _REQUEST_ID.fullmatch(given) else token_hex(8)


def _add_headers(response: Response) -> None:
    headers = response.headers
    headers.add("X-Request-ID", g.request_id)
    headers.extend(_HEADERS)
    if "Content-Security-Policy" not in headers:
        headers.add("Content-Security-Policy", _LOCKED_DOWN)


def _route() -> str:
    """Returns the declared path, so that a metric label never holds input of a client."""
    rule = request.url_rule
    return rule.rule if rule is not None else "none"


def _method() -> str:
    return request.method if request.method in ("GET", "POST", "DELETE", "PUT", "HEAD", "OPTIONS") else "other"


def _trace_of_caller() -> dict[str, str]:
    found = trace_id(g.trace_parent)
    return {"trace_id": found} if found else {}


def _write_line(status: int, seconds: float) -> None:
    quiet = status < 400 and request.path.startswith(_QUIET)
    level = logging.DEBUG if quiet else logging.INFO
    if not log.isEnabledFor(level):
        return
    about = {
        "request_id": g.request_id,
        "method": request.method[:16],
        "path": request.path[:256],
        "status": status,
        "ms": round(seconds * 1000, 2),
    }
    if client := g.get("client"):
        about["client"] = client
    task_id = g.get("task_id") or (request.view_args or {}).get("task_id")
    if task_id:
        about["task_id"] = task_id
    about.update(log_fields() or _trace_of_caller())
    log.log(level, "request", extra=about)
