"""Authentication, authorization, CSRF protection and security headers of every request.

A change requires a role, a session, the CSRF token of that session, and an Origin of this site.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar
from urllib.parse import quote

from flask import Flask, Response, abort, current_app, g, redirect, request, session

from firmq.dashboard.auth.sessions import Sessions, SignedCookies
from firmq.dashboard.auth.users import ANYONE, Person, Role, Users
from firmq.shared.config.settings import Settings
from firmq.shared.http.bind import answers_to

if TYPE_CHECKING:
    from redis import Redis
    from werkzeug.wrappers import Response as AnyResponse

P = ParamSpec("P")
T = TypeVar("T")

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
OPEN = frozenset({"static", "health.live", "health.ready", "metrics.show"})
"""Endpoints that need no sign-in, beside the pages of the sign-in."""
FORWARDED = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "Via")
"""Request headers that show that a proxy forwarded the request."""


def install(app: Flask, settings: Settings, users: Users, sessions: Sessions, redis: Redis) -> None:
    """Installs the checks before, and the headers after, every request of the app."""
    app.config.update(
        SESSION_COOKIE_NAME="firmq_dashboard",
        SESSION_COOKIE_SAMESITE="Lax",
        SESSION_COOKIE_SECURE=settings.dashboard_https,
        SESSION_REFRESH_EACH_REQUEST=False,
        # The cookie identifies known browsers; the session itself ends in Redis, much earlier.
        PERMANENT_SESSION_LIFETIME=timedelta(days=365),
        MAX_CONTENT_LENGTH=settings.max_body_bytes + 65_536,
        MAX_FORM_MEMORY_SIZE=settings.max_body_bytes + 65_536,
    )
    app.session_interface = SignedCookies(settings.dashboard_secret, redis)

    @app.before_request
    def begin() -> AnyResponse | None:
        g.person = None
        _check_host(settings, users)
        is_open = _is_open(settings, users)
        if is_open and not _is_sign_in():
            return None
        g.person = _identify(settings, users, sessions)
        if g.person is None and not is_open:
            return _send_to_sign_in()
        if request.method not in ("GET", "HEAD", "OPTIONS"):
            _check_forgery()
        return None

    @app.after_request
    def end(response: Response) -> Response:
        response.headers.update(HEADERS)
        if request.endpoint != "static":
            response.headers["Cache-Control"] = "no-store"
        return response


def needs(role: Role) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorates a view so that it answers 403 below this role."""

    def around(view: Callable[P, T]) -> Callable[P, T]:
        @wraps(view)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
            demand_role(role)
            return view(*args, **kwargs)

        return guarded

    return around


def demand_role(role: Role) -> None:
    """Ends the request with 403 below this role."""
    if not person().may(role):
        abort(403, f"this action requires the role {role.name.lower()}, which {person().name} does not have")


def person() -> Person:
    """Returns the person of the current request; every page has one."""
    found: Person | None = g.get("person")
    if found is None:
        abort(401)
    return found


def csrf_token() -> str:
    """Returns the CSRF token of this session, which every form carries."""
    if "csrf" not in session:
        session["csrf"] = secrets.token_urlsafe(24)
    return str(session["csrf"])


def safe_target(path: str) -> str:
    """Returns the path if it is on this site, else the path of the overview."""
    return path if path.startswith("/") and path[1:2] not in ("/", "\\") and path.isprintable() else "/"


def _identify(settings: Settings, users: Users, sessions: Sessions) -> Person | None:
    """Returns the person of the request: from the session, from a trusted proxy, or anonymous if that is allowed."""
    if not users.required:
        return ANYONE
    if users.proxy_header and _is_trusted_proxy(settings):
        name = request.headers.get(users.proxy_header, "").strip()
        if name and name.isprintable():
            return users.from_proxy(name[:200])
    return sessions.person(active="HX-Request" not in request.headers)


def _is_trusted_proxy(settings: Settings) -> bool:
    """Returns whether the trusted proxy sent the request: its address is not enough, as others may share it."""
    given, secret = request.headers.get("X-Proxy-Secret", ""), settings.dashboard_proxy_secret
    is_known = request.remote_addr in settings.dashboard_trusted_proxies
    return is_known and bool(secret) and hmac.compare_digest(given.encode(), secret.encode())


def _check_host(settings: Settings, users: Users) -> None:
    """Refuses unknown host names on a dashboard without sign-in: protection against DNS rebinding."""
    if not users.required and not answers_to(request.host, settings.bind_host, settings.allowed_hosts):
        abort(
            403,
            "this dashboard requires no sign-in, so it accepts only local host names: use localhost or an address, or "
            "add the name to ALLOWED_HOSTS",
        )


def _is_open(settings: Settings, users: Users) -> bool:
    """Returns whether the request needs no sign-in.

    Prometheus reads metrics directly, by a name inside the network. A request through an ingress has headers of a
    proxy, or a public host name, and needs a sign-in.
    """
    if request.endpoint == "metrics.show" and users.required:
        is_direct = not any(name in request.headers for name in FORWARDED)
        return is_direct and answers_to(request.host, settings.bind_host, settings.allowed_hosts)
    return request.endpoint in OPEN or _is_sign_in()


def _is_sign_in() -> bool:
    return request.url_rule is not None and f"{request.url_rule.rule}/".startswith("/sign-in/")


def _check_forgery() -> None:
    origin = request.headers.get("Origin")
    is_foreign = origin is not None and origin.partition("://")[2] != (request.host or None)
    if is_foreign or request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        abort(403, "the form was sent from another site")
    given, known = request.form.get("csrf", ""), str(session.get("csrf", ""))
    if not known or not hmac.compare_digest(given.encode(), known.encode()):
        abort(403, "the form has expired, or cookies are blocked: go back, reload the page and try again")


def _send_to_sign_in() -> AnyResponse:
    if request.headers.get("HX-Request"):
        return current_app.response_class(status=401, headers={"HX-Redirect": "/sign-in"})
    target = request.full_path.rstrip("?") if request.method == "GET" else "/"
    return redirect(f"/sign-in?next={quote(target, safe='/')}")
