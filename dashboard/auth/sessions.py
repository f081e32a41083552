"""Sessions, and the signed cookies that hold their ids.

A session is stored in Redis, so that a sign-out takes effect in every process. The cookie carries the session id, the
name and a digest of password and role (for a user of an identity provider the role, and a digest of the settings that
gave it); Redis holds a hash of the id only. Both are required: access to Redis alone does
not sign in, and a copied cookie is useless after the sign-out.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

from flask import session
from flask.sessions import SecureCookieSessionInterface
from redis.exceptions import RedisError

from firmq.dashboard.auth.users import Person, Role, Users
from firmq.shared.redis.client import keys_of, text, translated

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

    def __init__(self, redis: Redis, users: Users, lifetime_seconds: float, idle_seconds: float = 0) -> None:
        self.redis = redis
        self.keys = keys_of(redis)
        self.users = users
        self.lifetime_ms = int(lifetime_seconds * 1000)
        self.idle_ms = int(idle_seconds * 1000)

    def begin(self, person: Person) -> None:
        """Signs a user of the settings in, after a sign-out."""
        self._begin(person, mark=self.users.mark(person.name))

    def begin_external(self, person: Person) -> None:
        """Signs a user of the identity provider in, after a sign-out."""
        self._begin(person, mark=self.users.provider_mark, role=person.role.name, owner=person.account)

    def _begin(self, person: Person, **about: str) -> None:
        self.end()
        session.clear()
        session_id = secrets.token_urlsafe(32)
        with translated(), self.redis.pipeline() as pipeline:
            pipeline.set(self._key(session_id), person.name, px=self.lifetime_ms)
            if self.idle_ms:
                pipeline.set(self._activity(session_id), "", px=self.idle_ms)
            pipeline.execute()
        session.permanent = True
        session.update(id=session_id, name=person.name, **about)

    def person(self, active: bool = True) -> Person | None:
        """Returns the signed-in user; a change of password or role ends the session, and so does its time.

        `active` is whether the request counts as activity of the user.
        """
        if "id" not in session:
            return None
        person = self._external_person() if "role" in session else self._local_person()
        if person is None:
            self.end()
            return None
        return person if self._lasts(str(session["id"]), active) else None

    def _lasts(self, session_id: str, active: bool) -> bool:
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            pipeline.exists(self._key(session_id))
            if self.idle_ms and active:
                pipeline.pexpire(self._activity(session_id), self.idle_ms)
            elif self.idle_ms:
                pipeline.exists(self._activity(session_id))
            return all(pipeline.execute())

    def _external_person(self) -> Person | None:
        """Returns the user of the identity provider, unless its settings changed."""
        mark, role = str(session.get("mark", "")), str(session["role"])
        known = self.users.provider_mark
        good = known and hmac.compare_digest(mark.encode(), known.encode())
        name, owner = (str(session.get(each, "")) for each in ("name", "owner"))
        return Person(name, Role[role], owner) if good and role in Role.__members__ else None

    def _local_person(self) -> Person | None:
        person = self.last_person()
        return replace(person, account=self.users.account(person.name)) if person else None

    def last_person(self) -> Person | None:
        """Returns the last user signed in with this browser, even signed out, unless password or role changed."""
        person = None if "role" in session else self.users.named(str(session.get("name", "")))
        mark = str(session.get("mark", "")).encode()
        return person if person and hmac.compare_digest(mark, self.users.mark(person.name).encode()) else None

    def end(self) -> None:
        """Signs out, in every browser that has this cookie; the cookie keeps the last user."""
        if session_id := session.pop("id", None):
            with translated():
                self.redis.delete(self._key(str(session_id)), self._activity(str(session_id)))
        session.pop("csrf", None)

    def _key(self, session_id: str) -> str:
        return self.keys.dashboard_session(hashlib.sha256(session_id.encode()).hexdigest())

    def _activity(self, session_id: str) -> str:
        return self.keys.dashboard_activity(hashlib.sha256(session_id.encode()).hexdigest())
