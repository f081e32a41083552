"""Installs OpenTelemetry's instrumentation of Flask, Redis and common HTTP clients, only where it is needed.

Those packages do their work even if no span is recorded: at least 80 µs per request, where Flask takes 130 µs. And a
process that polls Redis would begin a trace each time. So each is gated: a request is instrumented only if its trace is
sampled, which is decided first; a Redis command only inside a recorded span; an HTTP call also to propagate that
nothing is recorded.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import TYPE_CHECKING, Any

from opentelemetry import context, trace

from firmq.shared.domain.traceparent import checked
from firmq.shared.observability.tracing import Tracing, context_from, not_recorded

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment
    from flask import Flask

log = logging.getLogger(__name__)

Carries = Callable[[], str | None]

_QUIET = ("/health", "/metrics")
_HTTP_CLIENTS = (
    # module, its instrumentation package, the instrumentor, and the methods that it patches: owner and name
    ("requests", "opentelemetry.instrumentation.requests", "RequestsInstrumentor", (("Session", "send"),)),
    ("urllib.request", "opentelemetry.instrumentation.urllib", "URLLibInstrumentor", (("OpenerDirector", "open"),)),
    (
        "httpx",
        "opentelemetry.instrumentation.httpx",
        "HTTPXClientInstrumentor",
        (("HTTPTransport", "handle_request"), ("AsyncHTTPTransport", "handle_async_request")),
    ),
)
_REDIS = (
    "redis",
    "opentelemetry.instrumentation.redis",
    "RedisInstrumentor",
    (
        ("Redis", "execute_command"),
        ("client.Pipeline", "execute"),
        ("client.Pipeline", "immediate_execute_command"),
        ("asyncio.Redis", "execute_command"),
        ("asyncio.client.Pipeline", "execute"),
        ("asyncio.client.Pipeline", "immediate_execute_command"),
    ),
)


def trace_requests(app: Flask, tracing: Tracing, methods: Iterable[str] = ()) -> None:
    """Adds spans around the app's requests; with `methods`, only around those methods.

    Call it before other `before_request` functions are registered, so that they run inside the span.
    """
    if not tracing.on:
        return
    _prepare()
    from opentelemetry.instrumentation.flask import FlaskInstrumentor

    from firmq.shared.observability.otlp import DecidedBefore

    plain = app.wsgi_app
    instrumentor: Any = FlaskInstrumentor()
    instrumentor.instrument_app(app, tracer_provider=tracing.provider, enable_commenter=False)
    traced: WSGIApplication = app.wsgi_app
    before: list[Any] = app.before_request_funcs[None]
    # The original begins a span for every request; only requests through its own middleware have its mark.
    begin = before[-1]
    before[-1] = lambda: begin() if _let_in() else None
    wanted = frozenset(methods)

    def middleware(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"].startswith(_QUIET) or (wanted and environ["REQUEST_METHOD"] not in wanted):
            return plain(environ, start_response)
        given = checked(environ.get("HTTP_TRACEPARENT"))
        if not tracing.decide(given):
            with _set(not_recorded, True):
                return plain(environ, start_response)
        with _set(DecidedBefore.decided, True):
            return traced(environ, start_response)

    app.wsgi_app = middleware  # type: ignore[method-assign]  # as Flask's own documentation does it


@contextmanager
def _set(variable: ContextVar[Any], value: object) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def trace_redis(tracing: Tracing) -> None:
    """Adds spans for Redis commands, inside recorded spans only."""
    if tracing.on:
        _prepare()
        _when_imported(_REDIS, tracing, None)


def trace_calls(tracing: Tracing, carries: Carries) -> None:
    """Adds spans for HTTP calls, which also propagate the trace; `carries` returns the traceparent if none is recorded.

    HTTP clients that the process does not import are not imported.
    """
    if tracing.on:
        _prepare()
        for client in _HTTP_CLIENTS:
            _when_imported(client, tracing, carries)


def _prepare() -> None:
    # Selects the current attribute names; without it the packages use outdated ones.
    os.environ.setdefault("OTEL_SEMCONV_STABILITY_OPT_IN", "http,database")


def _let_in() -> bool:
    from flask import request

    return "opentelemetry-flask.starttime_key" in request.environ


def _when_imported(client: Any, tracing: Tracing, carries: Carries | None) -> None:
    from wrapt import register_post_import_hook

    name, package, instrumentor, places = client

    def instrument(module: Any) -> None:
        try:
            owners = [(functools.reduce(getattr, owner.split("."), module), method) for owner, method in places]
            originals = [vars(owner)[method] for owner, method in owners]
            made = getattr(import_module(package), instrumentor)
            made().instrument(tracer_provider=tracing.provider, skip_dep_check=True)
            for (owner, method), original in zip(owners, originals, strict=True):
                setattr(owner, method, _gated(original, vars(owner)[method], carries))
        except Exception as error:  # an unsupported version must not prevent the import
            log.warning("calls by %s are not traced: %s: %s", name, type(error).__name__, error)

    register_post_import_hook(instrument, name)


def _gated(original: Any, traced: Any, carries: Carries | None) -> Any:
    """Returns a method that calls its instrumented form only when needed."""

    def choice(owner: Any) -> tuple[Any, object]:
        if trace.get_current_span().is_recording():
            return traced.__get__(owner, type(owner)), None
        current_traceparent = carries() if carries else None
        if current_traceparent is None:
            return original.__get__(owner, type(owner)), None
        return traced.__get__(owner, type(owner)), context.attach(context_from(current_traceparent))

    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        method, token = choice(self)
        try:
            return method(*args, **kwargs)
        finally:
            _leave(token)

    @functools.wraps(original)
    async def call_async(self: Any, *args: Any, **kwargs: Any) -> Any:
        method, token = choice(self)
        try:
            return await method(*args, **kwargs)
        finally:
            _leave(token)

    return call_async if inspect.iscoroutinefunction(original) else call


def _leave(token: Any) -> None:
    if token is not None:
        context.detach(token)
