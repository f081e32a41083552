# Generated from shared/client/aio/transport.py by `python -m tools.unasync`: change that file.
"""Requests to a gateway: connection reuse, time limits, and retries where they are safe.

After 429 every request is retried, because nothing was changed. After 503, where the request may have taken effect, and
after a lost response, only requests that are safe to repeat are retried. Retries respect Retry-After and end after
`patience` seconds; that is short for single requests, which may be part of a web request.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from firmq.shared.client.concurrency import Sleep, sleep
from firmq.shared.client.response import NOTHING_DONE, Answer, OwnKey, may_pass, retry_after, unreachable
from firmq.shared.submission.problems import problem

if TYPE_CHECKING:
    import ssl

BRIEF, LASTING = 2.0, 30.0
"""Default seconds of patience for a single request, and for a long operation."""


class Patience:
    """The time limit for retries, and the pauses between them."""

    def __init__(self, seconds: float, sleep: Sleep, clock: Callable[[], float]) -> None:
        self.seconds = seconds
        self.sleep = sleep
        self.clock = clock
        self.renew()

    def renew(self) -> None:
        """Restarts the time limit after progress."""
        self.until = self.clock() + self.seconds
        self.tries = 0

    @contextmanager
    def uncounted(self, most: float) -> Iterator[None]:
        """Extends the time limit by the block's duration, at most by `most` seconds."""
        begun = self.clock()
        try:
            yield
        finally:
            self.until += min(most, self.clock() - begun)

    def pause(self, wished: float | None = None) -> bool:
        """Waits before the next retry. Returns False immediately when no time is left for one."""
        seconds = min(5.0, 0.1 * 2**self.tries) if wished is None else wished
        # Clients that were refused at the same time should not retry at the same time.
        seconds *= 1 + random.random() / 4
        self.tries += 1
        if self.clock() + seconds > self.until:
            return False
        self.sleep(seconds)
        return True


class Transport:
    """Sends requests to one gateway, or several behind one address. Use it in one event loop."""

    def __init__(
        self,
        url: str,
        *,
        timeout: float,
        patience: float | None,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        sleep: Sleep = sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if "@" in url:  # checked first, because other errors quote the address
            raise ValueError(
                "the address of a gateway must not contain a user or password: remove the part before the @, and pass "
                "the API key as api_key or FIRMQ_API_KEY"
            )
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the address of a gateway must be like http://localhost:8000, got {url!r}")
        self.url = url.rstrip("/")
        self.prefix = parts.path.rstrip("/")
        # Imported here because http.client and ssl take as long to import as all the rest of the client.
        from firmq.shared.client.connections import Connections

        self.connections = Connections(parts.hostname, parts.port, (tls or _tls()) if parts.scheme == "https" else None)
        self.timeout = timeout
        self.seconds = patience
        self.headers = {"User-Agent": "firmq-client", **(headers or {})}
        self.sleep = sleep
        self.clock = clock

    def patience(self, *, lasting: bool = False) -> Patience:
        seconds = self.seconds if self.seconds is not None else LASTING if lasting else BRIEF
        return Patience(seconds, self.sleep, self.clock)

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        wait: float | None = None,
        repeatable: bool = True,
        lasting: bool = False,
        key: Callable[[], str] | None = None,
    ) -> Answer:
        """Sends a request and returns its response; `body` is a value or JSON.

        `key` makes its Idempotency-Key, and another one as long as each response states that nothing was changed: it
        may lead to another Redis, which answers.

        `wait` is the seconds for which the gateway may wait before it responds. A retry does not wait: its response
        shows that the gateway is back, and the caller knows how much time is left. Raises Problem or Unreachable.
        """
        content = body if body is None or isinstance(body, bytes) else _encoded(body)
        sent = {**self.headers, **(headers or {})}
        if content is not None:
            sent["Content-Type"] = "application/json"
        patience = self.patience(lasting=lasting)
        own = OwnKey(key)
        while True:
            target = self.target(path, {**(query or {}), "wait": wait})
            longer, wait = wait or 0.0, wait and 0.0  # a retry does not wait
            try:
                with patience.uncounted(longer):
                    answer = self.connections.request(
                        method, target, content, {**sent, **own.headers}, self.timeout + longer, reuse=repeatable
                    )
            except self.connections.LOST as error:
                may = repeatable or isinstance(error, ConnectionRefusedError)
                if not may or not patience.pause():
                    raise unreachable(self.url, error) from error
                own.keep()
                continue
            if 200 <= answer.status < 300:
                return answer
            refusal = problem(answer.status, answer.body, answer.headers.get("Location"))
            may = may_pass(refusal) and (repeatable or refusal.status == NOTHING_DONE)
            own.renew(refusal)
            if not may or not patience.pause(retry_after(answer.headers.get("Retry-After"))):
                raise refusal

    def target(self, path: str, query: Mapping[str, Any] | None = None) -> str:
        """Returns the path with prefix and query."""
        given = {name: value for name, value in (query or {}).items() if value is not None}
        return f"{self.prefix}{path}?{urlencode(given)}" if given else f"{self.prefix}{path}"

    def close(self) -> None:
        self.connections.close()


def _tls() -> ssl.SSLContext:
    import ssl

    return ssl.create_default_context()


def _encoded(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
