"""Who is asking, whether they may, and what a browser may do with what we send.

A change needs: a role, a session, the token of that session, and an Origin that is ours. A session is a signed cookie
whose id Redis knows.
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
"""What may be seen without having signed in."""
FORWARDED = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "Via")
"""Headers of a request that a proxy has passed on."""


def install(app: Flask, settings: Settings, users: Users, sessions: Sessions, redis: Redis) -> None:
    """Puts it around every request of the app."""
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
    """Who is asking: anyone where nobody has to sign in, whom a trusted proxy names, or whose session it is."""
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
    """Changes with the password and the role, so that a change of either ends all sessions from before."""
    role, hashed = users.hashes[name]
    return hashlib.sha256(f"{role.name}:{hashed}".encode()).hexdigest()[:16]


def csrf_token() -> str:
    """The token that every form of this session carries."""
    if "csrf" not in session:
        session["csrf"] = secrets.token_urlsafe(24)
    return str(session["csrf"])


def needs(role: Role) -> Callable[[F], F]:
    """Lets in only who has this role or a higher one."""

    def around(view: F) -> F:
        @wraps(view)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            if not person().may(role):
                abort(403, f"this takes the role {role.name.lower()}, and {person().name} has less")
            return view(*args, **kwargs)

        return guarded  # type: ignore[return-value]  # the same signature

    return around


def person() -> Person:
    """Whoever is asking; pages are only reached by somebody."""
    found: Person | None = g.get("person")
    if found is None:
        abort(401)
    return found


def safe_target(path: str) -> str:
    """A path of this site to go on to, whatever somebody put into an address."""
    inside = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if inside and not urlsplit(path).netloc else "/"


class SecretStore:
    """The key that signs cookies: from the settings, else one kept in Redis, so that all processes share it."""

    def __init__(self, given: str, redis: Redis) -> None:
        self.redis = redis
        self.known = given or None
        self.stopgap = secrets.token_hex(32)

    def secret(self) -> str:
        """While Redis is away at the first request, or has none that is one, a key of this moment serves."""
        if self.known is None:
            try:
                self.redis.set(keys.DASHBOARD_SECRET, secrets.token_hex(32), nx=True)
                self.known = text(self.redis.get(keys.DASHBOARD_SECRET) or b"") or None
            except RedisError:
                return self.stopgap
        return self.known or self.stopgap


class SignedCookies(SecureCookieSessionInterface):
    """Signed cookies whose key is asked for when it is first needed, which may be long after the start."""

    def __init__(self, keeper: SecretStore) -> None:
        self.keeper = keeper

    def get_signing_serializer(self, app: Flask) -> URLSafeTimedSerializer | None:
        app.secret_key = self.keeper.secret()
        return super().get_signing_serializer(app)


def _check_host(settings: Settings, users: Users) -> None:
    """A page elsewhere whose name was made to point at this machine must not get in where nobody has to sign in."""
    if not users.required and not answers_to(request.host, settings.bind_host, settings.allowed_hosts):
        abort(
            403,
            "this dashboard is open without sign-in, so it answers under names of this machine only: localhost, an "
            "address, or what ALLOWED_HOSTS names",
        )


def _is_open(settings: Settings, users: Users) -> bool:
    """Whether nobody has to sign in for this.

    Prometheus asks for metrics directly and by a name inside the network. A request through an ingress has headers of
    a proxy, or the public name that it was sent to.
    """
    if request.endpoint == "metrics.show" and users.required:
        is_direct = not any(name in request.headers for name in FORWARDED)
        return is_direct and answers_to(request.host, settings.bind_host, settings.allowed_hosts)
    return request.endpoint in OPEN


def _is_trusted_proxy(settings: Settings) -> bool:
    """Whether the request comes from the proxy: from its address and with its secret, as others share the address."""
    given, secret = request.headers.get("X-Proxy-Secret", ""), settings.dashboard_proxy_secret
    is_known = request.remote_addr in settings.dashboard_trusted_proxies
    return is_known and bool(secret) and hmac.compare_digest(given.encode(), secret.encode())


def _check_forgery() -> None:
    origin = request.headers.get("Origin")
    if origin is not None and (_split(origin).netloc or None) != request.host:
        abort(403, "this form was sent from another site")
    if request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        abort(403, "this form was sent from another site")
    given = request.form.get("csrf") or request.headers.get("X-CSRF-Token", "")
    known = str(session.get("csrf", ""))
    if not known or not hmac.compare_digest(given.encode(), known.encode()):
        abort(403, "the form is too old, or your browser keeps no cookies: go back, reload the page, try again")


def _split(address: str) -> SplitResult:
    """The parts of an address; one that cannot be read has none."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


def _send_to_sign_in() -> AnyResponse:
    if request.headers.get("HX-Request"):
        return current_app.response_class(status=401, headers={"HX-Redirect": "/sign-in"})
    target = request.full_path.rstrip("?") if request.method == "GET" else "/"
    return redirect(f"/sign-in?next={quote(target, safe='/')}")
