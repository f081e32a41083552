"""Sessions, and the signed cookies that hold their ids.

A session is stored in Redis, so that a sign-out takes effect in every process. The cookie carries the session id, the
name and a digest of password and role; Redis holds a hash of the id only. Both are required: access to Redis alone does
not sign in, and a copied cookie is useless after the sign-out.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING

from flask import session
from flask.sessions import SecureCookieSessionInterface
from redis.exceptions import RedisError

from taskqueue.dashboard.auth.users import Person, Users
from taskqueue.shared.redis.client import keys_of, text, translated

if TYPE_CHECKING:
    from flask import Flask
    from itsdangerous import URLSafeTimedSerializer
    from redis import Redis


class SignedCookies(SecureCookieSessionInterface):
    """Cookies signed with DASHBOARD_SECRET, or else with a key in Redis that all processes share."""

    def __init__(self, secret: str, redis: Redis) -> None:
        self.secret = secret
        self.redis = redis
        self.keys = keys_of(redis)
        self.temporary = secrets.token_hex(32)

    def key(self) -> str:
        """Returns the key; a temporary one while Redis is unavailable or holds an invalid one."""
        if not self.secret:
            try:
                self.redis.set(self.keys.DASHBOARD_SECRET, secrets.token_hex(32), nx=True)
                self.secret = text(self.redis.get(self.keys.DASHBOARD_SECRET) or b"")
            except RedisError:
                return self.temporary
        return self.secret or self.temporary

    def get_signing_serializer(self, app: Flask) -> URLSafeTimedSerializer | None:
        """Reads the key at the first request, which may be long after the start."""
        app.secret_key = self.key()
        return super().get_signing_serializer(app)


class Sessions:
    """Starts, checks and ends the session of the current request. Every method raises StoreUnavailable."""

    def __init__(self, redis: Redis, users: Users, lifetime_seconds: float) -> None:
        self.redis = redis
        self.keys = keys_of(redis)
        self.users = users
        self.lifetime_ms = int(lifetime_seconds * 1000)

    def begin(self, person: Person) -> None:
        """Signs the user in, after a sign-out."""
        self.end()
        session.clear()
        session_id = secrets.token_urlsafe(32)
        with translated():
            self.redis.set(self._key(session_id), person.name, px=self.lifetime_ms)
        session.permanent = True
        session.update(id=session_id, name=person.name, mark=self.users.mark(person.name))

    def person(self) -> Person | None:
        """Returns the user who is signed in; a change of password or role ends the session."""
        person = self.last_person()
        if "id" not in session:
            return None
        if person is None:
            self.end()
            return None
        with translated():
            return person if self.redis.exists(self._key(str(session["id"]))) else None

    def last_person(self) -> Person | None:
        """Returns who signed in last with this browser, also after the sign-out, unless password or role changed."""
        person = self.users.named(str(session.get("name", "")))
        mark = str(session.get("mark", "")).encode()
        return person if person and hmac.compare_digest(mark, self.users.mark(person.name).encode()) else None

    def end(self) -> None:
        """Signs out, in every browser that has this cookie; the cookie keeps who signed in last."""
        if session_id := session.pop("id", None):
            with translated():
                self.redis.delete(self._key(str(session_id)))
        session.pop("csrf", None)

    def _key(self, session_id: str) -> str:
        return self.keys.dashboard_session(hashlib.sha256(session_id.encode()).hexdigest())
