"""Active sessions by id. They are stored in Redis, so that a sign-out takes effect in every process.

The signed cookie carries the session id, the name and a digest of password and role; Redis holds a hash of the id only.
Both are required: access to Redis alone does not sign in, and a copied cookie is useless after the sign-out.
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
    """Starts, checks and ends sessions."""

    def __init__(self, redis: Redis, lifetime_seconds: float) -> None:
        self.redis = redis
        self.lifetime_ms = int(lifetime_seconds * 1000)

    def begin(self, name: str) -> str:
        """Starts a session of this user and returns its id. Raises StoreUnavailable."""
        session_id = secrets.token_urlsafe(32)
        with translated():
            self.redis.set(_key(session_id), name, px=self.lifetime_ms)
        return session_id

    def is_live(self, session_id: str) -> bool:
        """Returns whether the session is active. Raises StoreUnavailable."""
        with translated():
            return bool(self.redis.exists(_key(session_id)))

    def end(self, session_id: str) -> None:
        """Ends the session in every browser that has its cookie."""
        with translated():
            self.redis.delete(_key(session_id))


def _key(session_id: str) -> str:
    return keys.dashboard_session(hashlib.sha256(session_id.encode()).hexdigest())
