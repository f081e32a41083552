"""Authentication, authorization, CSRF protection and security headers of every request.

A change requires a role, a session, the CSRF token of that session, and an Origin of this site. A session is a signed
cookie whose id is stored in Redis.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult, quote, urlsplit

from flask import Flask, Response, abort, current_app, g, redirect, request, session
from flask.sessions import SecureCookieSessionInterface
from redis import Redis
from redis.exceptions import RedisError

from dashboard.auth.sessions import Sessions
from dashboard.auth.users import ANYONE, Person, Role, Users
from shared.config.settings import Settings
from shared.http.bind import answers_to
from shared.redis import keys
from shared.redis.client import text

if TYPE_CHECKING:
    from itsdangerous import URLSafeTimedSerializer
    from werkzeug.wrappers import Response as AnyResponse

F = TypeVar("F", bound=Callable[..., Any])

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
SIGN_IN = frozenset({"sign_in.form", "sign_in.enter"})
OPEN = frozenset({"static", "health.live", "health.ready", "metrics.show"}) | SIGN_IN
"""Paths that need no sign-in."""
FORWARDED = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "Via")
"""Request headers that show that a proxy forwarded the request."""


def install(app: Flask, settings: Settings, users: Users, sessions: Sessions, redis: Redis) -> None:
    """Installs the checks before, and the headers after, every request of the app."""
    app.config.update(
        SESSION_COOKIE_NAME="taskqueue_dashboard",
        SESSION_COOKIE_HTTPONLY=True,
        SESSION_COOKIE_SAMESITE="Lax",
        SESSION_COOKIE_SECURE=settings.dashboard_https,
        SESSION_REFRESH_EACH_REQUEST=False,
        MAX_CONTENT_LENGTH=settings.max_body_bytes + 65_536,
        MAX_FORM_MEMORY_SIZE=settings.max_body_bytes + 65_536,
    )
    app.session_interface = SignedCookies(SecretStore(settings.dashboard_secret, redis))

    @app.before_request
    def begin() -> AnyResponse | None:
        g.person = None
        _check_host(settings, users)
        is_open = _is_open(settings, users)
        if is_open and request.endpoint not in SIGN_IN:
            return None
        g.person = identify(settings, users, sessions)
        if g.person is None and not is_open:
            return _send_to_sign_in()
        if request.method not in ("GET", "HEAD", "OPTIONS"):
            _check_forgery()
        return None

    @app.after_request
    def end(response: Response) -> Response:
        for name, value in HEADERS:
            response.headers[name] = value
        if request.endpoint != "static":
            response.headers["Cache-Control"] = "no-store"
        return response


def identify(settings: Settings, users: Users, sessions: Sessions) -> Person | None:
    """Returns the person of the request: from the session, from a trusted proxy, or anonymous if that is allowed."""
    if not users.required:
        return ANYONE
    if users.proxy_header and _is_trusted_proxy(settings):
        name = request.headers.get(users.proxy_header, "").strip()
        if name and name.isprintable():
            return users.from_proxy(name[:200])
    found, session_id = users.named(str(session.get("name", ""))), str(session.get("id", ""))
    if not session_id:
        return None
    if found is None or not hmac.compare_digest(str(session.get("mark", "")), mark(users, found.name)):
        sessions.end(session_id)
        return None
    return found if sessions.is_live(session_id) else None


def mark(users: Users, name: str) -> str:
    """Returns a digest of the user's password hash and role, so that a change of either ends earlier sessions."""
    role, hashed = users.hashes[name]
    return hashlib.sha256(f"{role.name}:{hashed}".encode()).hexdigest()[:16]


def csrf_token() -> str:
    """Returns the CSRF token of this session, which every form carries."""
    if "csrf" not in session:
        session["csrf"] = secrets.token_urlsafe(24)
    return str(session["csrf"])


def needs(role: Role) -> Callable[[F], F]:
    """Decorates a view so that it answers 403 below this role."""

    def around(view: F) -> F:
        @wraps(view)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            if not person().may(role):
                abort(403, f"this action requires the role {role.name.lower()}, which {person().name} does not have")
            return view(*args, **kwargs)

        return guarded  # type: ignore[return-value]  # the same signature

    return around


def person() -> Person:
    """Returns the person of the current request; every page has one."""
    found: Person | None = g.get("person")
    if found is None:
        abort(401)
    return found


def safe_target(path: str) -> str:
    """Returns the path if it is on this site, else the path of the overview."""
    inside = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if inside and not urlsplit(path).netloc else "/"


class SecretStore:
    """The key that signs cookies: from the settings, or stored in Redis so that all processes share it."""

    def __init__(self, given: str, redis: Redis) -> None:
        self.redis = redis
        self.known = given or None
        self.stopgap = secrets.token_hex(32)

    def secret(self) -> str:
        """Returns the key; a temporary one if Redis is unavailable at first use or holds an invalid key."""
        if self.known is None:
            try:
                self.redis.set(keys.DASHBOARD_SECRET, secrets.token_hex(32), nx=True)
                self.known = text(self.redis.get(keys.DASHBOARD_SECRET) or b"") or None
            except RedisError:
                return self.stopgap
        return self.known or self.stopgap


class SignedCookies(SecureCookieSessionInterface):
    """Signed cookies whose key is read at first use, which may be long after the start."""

    def __init__(self, keeper: SecretStore) -> None:
        self.keeper = keeper

    def get_signing_serializer(self, app: Flask) -> URLSafeTimedSerializer | None:
        app.secret_key = self.keeper.secret()
        return super().get_signing_serializer(app)


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
    return request.endpoint in OPEN


def _is_trusted_proxy(settings: Settings) -> bool:
    """Returns whether the trusted proxy sent the request: its address is not enough, as others may share it."""
    given, secret = request.headers.get("X-Proxy-Secret", ""), settings.dashboard_proxy_secret
    is_known = request.remote_addr in settings.dashboard_trusted_proxies
    return is_known and bool(secret) and hmac.compare_digest(given.encode(), secret.encode())


def _check_forgery() -> None:
    origin = request.headers.get("Origin")
    if origin is not None and (_split(origin).netloc or None) != request.host:
        abort(403, "the form was sent from another site")
    if request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        abort(403, "the form was sent from another site")
    given = request.form.get("csrf") or request.headers.get("X-CSRF-Token", "")
    known = str(session.get("csrf", ""))
    if not known or not hmac.compare_digest(given.encode(), known.encode()):
        abort(403, "the form has expired, or cookies are blocked: go back, reload the page and try again")


def _split(address: str) -> SplitResult:
    """Returns the parts of a URL; empty parts if it cannot be parsed."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


def _send_to_sign_in() -> AnyResponse:
    if request.headers.get("HX-Request"):
        return current_app.response_class(status=401, headers={"HX-Redirect": "/sign-in"})
    target = request.full_path.rstrip("?") if request.method == "GET" else "/"
    return redirect(f"/sign-in?next={quote(target, safe='/')}")
