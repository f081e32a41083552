"""Authenticates requests by API key, checks the scope, and counts requests against the key's rate.

The check runs in the process (`shared/stores/api_keys.py`) and costs a request microseconds. Redis is called once a
minute per key, to record its use, and for a key with a rate whenever the tokens of this process are used up: about ten
times a second, regardless of the number of requests. If Redis refuses writes or is unavailable, the request continues
without being counted. Features may look other keys up (`gateway/feature.py`).
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from flask import g, request

from firmq.gateway.http import errors
from firmq.gateway.http.across import CALLER
from firmq.shared.domain.redaction import Redaction
from firmq.shared.errors import StoreUnavailable
from firmq.shared.redis.client import translated
from firmq.shared.stores.api_keys import ApiKey, Keyring, Scope, key_use
from firmq.shared.submission.refusals import Refusal
from firmq.shared.submission.task_factory import Submitter

if TYPE_CHECKING:
    from firmq.gateway.circuit_breaker import CircuitBreaker
    from firmq.gateway.feature import OtherKeys
    from firmq.gateway.metrics import Metrics
    from firmq.shared.redis.scripts import Scripts

log = logging.getLogger(__name__)

NOTED_SECONDS = 60.0
"""Minimum seconds between two records of the use of a key."""
AHEAD_SECONDS = 0.1
"""Seconds for which a process takes tokens in advance."""
KEPT_SECONDS = 1.0
"""Seconds after which unused tokens expire, so that no client accumulates more than its rate."""
ANYBODY = "the REST API"
"""Actor in the audit record when no API keys are configured."""
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="Firmq"'}


class TokenCache:
    """The tokens of a key in this process, between two calls to Redis."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.tokens = 0
        self.good_until = 0.0
        self.noted_until = 0.0

    def take(self, now: float) -> bool:
        """Takes one of the cached tokens. Returns False if there is none."""
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
    """Authenticates requests; refusals give reason and remedy, but never which part of a key was right."""

    def __init__(
        self,
        keyring: Keyring,
        scripts: Scripts,
        metrics: Metrics,
        circuit_breaker: CircuitBreaker,
        clock: Callable[[], float] = time.monotonic,
        *,
        other_keys: Sequence[OtherKeys] = (),
        redaction: Redaction | None = None,
    ) -> None:
        """`circuit_breaker` guards the Redis of `scripts`; `redaction` is for requests with personal keys."""
        self.other_keys = other_keys
        self.redaction = redaction or Redaction(())
        self.keyring = keyring
        self.scripts = scripts
        self.metrics = metrics
        self.circuit_breaker = circuit_breaker
        self.clock = clock
        self.token_caches: dict[str, TokenCache] = {}

    def authenticate(self, scope: Scope | None) -> None:
        """Authenticates the request if it needs a scope. Raises Refusal: 401 without a valid key, 403 without scope.

        Raises StoreUnavailable for a key in Redis while that is unreachable.
        """
        found = request.environ.get(CALLER)
        if isinstance(found, Exception):
            raise found
        if scope is None or not self.keyring.required:
            return
        text = _given()
        if text is None:
            self.metrics.refused("missing")
            raise Refusal(errors.KEY_MISSING, "send the header `Authorization: Bearer KEY`", headers=CHALLENGE)
        key = found or self.keyring.find(text) or self._other(text)
        if key is None:
            self.metrics.refused("expired" if self.keyring.is_over(text) else "unknown")
            raise Refusal(errors.KEY_UNKNOWN, "invalid or expired API key: request a new one", headers=CHALLENGE)
        g.api_key, g.client = key, key.client
        if key.personal:
            g.redaction = self.redaction
        if not key.may(scope):
            self.metrics.refused("scope")
            has = ", ".join(key.scopes) or "no scope that this gateway allows"
            raise Refusal(errors.SCOPE, f"this needs the scope {scope}, but the key of {key.client} has {has}")

    def _other(self, text: str) -> ApiKey | None:
        found = (each.find(text, self.scripts, self.circuit_breaker) for each in self.other_keys)
        return next((key for key in found if key), None)

    def take_tokens(self) -> None:
        """Counts the request against the rate of its key and records the key's use, once. Raises Refusal (429).

        Without Redis requests pass uncounted, because operators need access during an outage.
        """
        key: ApiKey | None = g.get("api_key")
        if key is None or CALLER in request.environ:
            return
        token_cache, now = self.token_caches.setdefault(key.id, TokenCache()), self.clock()
        if (key.rate is None or token_cache.take(now)) and now < token_cache.noted_until:
            return
        try:
            with self.circuit_breaker.guarding():
                self._ask(key, token_cache, now)
        except StoreUnavailable as error:
            log.debug("use of API key not recorded", extra={"key": key.id, "why": str(error)})

    def _ask(self, key: ApiKey, token_cache: TokenCache, now: float) -> None:
        count, per = (key.rate.count, key.rate.per) if key.rate else (0.0, 1.0)
        wanted = max(1, int(count / per * AHEAD_SECONDS)) if key.rate else 0
        with translated():
            granted, wait = key_use(self.scripts, key.id, count / per, count, wanted)
        token_cache.noted_until = now + NOTED_SECONDS
        if wanted and not granted:
            self.metrics.refused("rate")
            headers = {"Retry-After": str(max(1, math.ceil(wait)))}
            rate = key.rate.text if key.rate else ""
            detail = f"the key of {key.client} is limited to {rate} requests: try again after Retry-After"
            raise Refusal(errors.RATE, detail, headers=headers)
        token_cache.fill(granted - 1, now)


def actor() -> str:
    """Returns the client and key of the request, for the audit record."""
    key: ApiKey | None = g.get("api_key")
    return f"{key.client} by API key {key.id}" if key else ANYBODY


def submitter() -> Submitter:
    """Returns the client of the request, for the tasks that it submits."""
    client = g.get("client", "")
    return Submitter(client, actor(), client)


def has_scope(scope: Scope) -> bool:
    """Returns whether the request has this scope."""
    key: ApiKey | None = g.get("api_key")
    return key is None or key.may(scope)


def demand_scope(scope: Scope, what: str) -> None:
    """Raises Refusal (403) if `what`, a part of an endpoint, needs a scope that the key of the request lacks."""
    if not has_scope(scope):
        raise Refusal(errors.SCOPE, f"{what} needs the scope {scope}, but the key of {g.api_key.client} lacks it")


def _given() -> str | None:
    """Returns the API key in the request, or None."""
    kind, _, text = request.headers.get("Authorization", "").partition(" ")
    return text.strip() or None if kind.lower() == "bearer" else None
