"""Sign-ins that are in force, by their session ids. Redis keeps them, so that signing out ends them everywhere.

The signed cookie carries the session id, the name and a mark of the password and role; Redis has a hash of the id only.
Both are needed: access to Redis alone signs no one in, and a copied cookie is worth nothing after the sign-out.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING

from shared.redis import keys
from shared.redis.client import translated

if TYPE_CHECKING:
    from redis import Redis


class Sessions:
    """Begins, looks up and ends sessions."""

    def __init__(self, redis: Redis, lifetime_seconds: float) -> None:
        self.redis = redis
        self.lifetime_ms = int(lifetime_seconds * 1000)

    def begin(self, name: str) -> str:
        """Returns the id of a new session of this user."""
        session_id = secrets.token_urlsafe(32)
        with translated():
            self.redis.set(_key(session_id), name, px=self.lifetime_ms)
        return session_id

    def is_live(self, session_id: str) -> bool:
        """Returns whether the session has begun and not ended. Raises StoreUnavailable."""
        with translated():
            return bool(self.redis.exists(_key(session_id)))

    def end(self, session_id: str) -> None:
        """Ends the session, in every browser that has its cookie."""
        with translated():
            self.redis.delete(_key(session_id))


def _key(session_id: str) -> str:
    return keys.dashboard_session(hashlib.sha256(session_id.encode()).hexdigest())
