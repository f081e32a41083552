"""Who is asking, and whether they may: API keys, their scopes, and how many requests each lets through.

What decides is in the process (`shared/stores/api_keys.py`), so it costs a request microseconds. Redis is asked once a
minute for a key, to note that it is used; for a key with a rate, whenever the tokens that this process took are used
up, which is about ten times a second however many requests there are. None of this is a condition: while Redis takes no
writes or is away the request goes on, and meets Redis itself.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from flask import g, request

from gateway.http import errors
from gateway.http.errors import Refusal
from shared.errors import StoreUnavailable
from shared.redis.client import translated
from shared.stores.api_keys import ApiKey, Keyring, Scope

if TYPE_CHECKING:
    from gateway.circuit_breaker import CircuitBreaker
    from gateway.metrics import Metrics
    from shared.redis.scripts import Scripts

log = logging.getLogger(__name__)

NOTED_SECONDS = 60.0
"""How often the use of a key is noted, at most."""
AHEAD_SECONDS = 0.1
"""A process takes tokens for so long ahead."""
KEPT_SECONDS = 1.0
"""What it has not used by then it forgets, so that nobody saves up more than his rate."""
ANYBODY = "the REST API"
"""Who the audit record says it was where nobody needs a key."""
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="Task Queue"'}


class TokenCache:
    """What this process knows of a key between two questions to Redis."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.tokens = 0
        self.good_until = 0.0
        self.noted_until = 0.0

    def take(self, now: float) -> bool:
        """One of the tokens that are here already."""
        with self.lock:
            if now >= self.good_until or not self.tokens:
                self.tokens = 0
                return False
            self.tokens -= 1
            return True

    def fill(self, tokens: int, now: float) -> None:
        with self.lock:
            self.tokens += tokens
            self.good_until = now + KEPT_SECONDS


class Authenticator:
    """Lets requests in, or says why not and what to change; never which part of a key was right."""

    def __init__(
        self, ring: Keyring, scripts: Scripts, metrics: Metrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.ring = ring
        self.scripts = scripts
        self.metrics = metrics
        self.clock = clock
        self.token_caches: dict[str, TokenCache] = {}

    def authenticate(self, scope: Scope | None) -> None:
        """Finds out who is asking, where it matters. Raises Refusal: 401 without a good key, 403 without the scope."""
        if scope is None or not self.ring.required:
            return
        text = _given()
        if text is None:
            self.metrics.refused("missing")
            raise Refusal(errors.KEY_MISSING, "send the header `Authorization: Bearer KEY`", headers=CHALLENGE)
        key = self.ring.find(text)
        if key is None:
            self.metrics.refused("expired" if self.ring.is_over(text) else "unknown")
            raise Refusal(errors.KEY_UNKNOWN, "this key is not known here, or its time is over", headers=CHALLENGE)
        g.api_key, g.client = key, key.client
        if not key.may(scope):
            self.metrics.refused("scope")
            has = ", ".join(key.scopes)
            raise Refusal(errors.SCOPE, f"this takes the scope {scope}, and the key of {key.client} has {has}")

    def take_tokens(self, circuit_breaker: CircuitBreaker) -> None:
        """Counts the request against the rate of its key, and notes that the key is used. Raises Refusal (429).

        Without Redis nothing is counted: an operator must get in just then.
        """
        key: ApiKey | None = g.get("api_key")
        if key is None:
            return
        token_cache, now = self.token_caches.setdefault(key.id, TokenCache()), self.clock()
        if (key.rate is None or token_cache.take(now)) and now < token_cache.noted_until:
            return
        try:
            with circuit_breaker.guarding():
                self._ask(key, token_cache, now)
        except StoreUnavailable as error:
            log.debug("the use of an API key is not noted", extra={"key": key.id, "why": str(error)})

    def _ask(self, key: ApiKey, token_cache: TokenCache, now: float) -> None:
        count, per = (key.rate.count, key.rate.per) if key.rate else (0.0, 1.0)
        wanted = max(1, int(count / per * AHEAD_SECONDS)) if key.rate else 0
        with translated():
            granted, wait = self.scripts.key_use(key.id, count / per, count, wanted)
        token_cache.noted_until = now + NOTED_SECONDS
        if wanted and not granted:
            self.metrics.refused("rate")
            headers = {"Retry-After": str(max(1, math.ceil(wait)))}
            rate = key.rate.text if key.rate else ""
            raise Refusal(errors.RATE, f"the key of {key.client} lets {rate} requests through", headers=headers)
        token_cache.fill(granted - 1, now)


def actor() -> str:
    """Who is asking, for the audit record."""
    key: ApiKey | None = g.get("api_key")
    return f"{key.client} by API key {key.id}" if key else ANYBODY


def _given() -> str | None:
    """The key that came with the request, if there is one."""
    kind, _, text = request.headers.get("Authorization", "").partition(" ")
    return text.strip() or None if kind.lower() == "bearer" else None
