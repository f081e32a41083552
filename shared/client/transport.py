"""Requests to a gateway: connection reuse, time limits, and retries where they are safe.

After 429 every request is retried, because nothing was changed. After 503, where the request may have taken effect, and
after a lost response, only requests that are safe to repeat are retried. Retries respect Retry-After and end after
`patience` seconds; that is short for single requests, which may be part of a web request.
"""

from __future__ import annotations

import json
import random
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlencode, urlsplit

from shared.client.problems import NoGateway, Problem, Unreachable, problem

BRIEF, LASTING = 2.0, 30.0
"""Default seconds of patience for a single request, and for a long operation."""
CONNECT = 2.0
"""Time limit for connecting, in seconds; a host that is down may drop packets."""
KEPT = 8
"""Maximum idle connections kept."""
IDLE = 30.0
"""Seconds for which an idle connection is kept; the gateway closes it after 60."""
_IN_PROGRESS = "/problems/request-in-progress"
_NOTHING_DONE = 429
_AGAIN = (408, _NOTHING_DONE, 503)
LOST = (OSError, HTTPException)
"""Exceptions for a lost response."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A response."""

    status: int
    headers: HTTPMessage
    body: bytes

    @property
    def document(self) -> dict[str, Any]:
        """Returns the body as a JSON object. Raises NoGateway when it is not one."""
        return read_document(self.body)


class Patience:
    """The time limit for retries, and the pauses between them."""

    def __init__(self, seconds: float, sleep: Callable[[float], None], clock: Callable[[], float]) -> None:
        self.seconds = seconds
        self.sleep = sleep
        self.clock = clock
        self.renew()

    def renew(self) -> None:
        """Restarts the time limit after progress."""
        self.until = self.clock() + self.seconds
        self.tries = 0

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
    """Sends requests to one gateway, or several behind one address. Thread-safe."""

    def __init__(
        self,
        url: str,
        *,
        timeout: float,
        patience: float | None,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if "@" in url:  # checked first, because other errors quote the address
            raise ValueError(
                "the address of a gateway must not contain a user or password: remove the part before the @, and pass "
                "the API key as api_key or TASKQUEUE_API_KEY"
            )
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the address of a gateway must be like http://localhost:8000, got {url!r}")
        self.url = url.rstrip("/")
        self.host, self.port = parts.hostname, parts.port
        self.prefix = parts.path.rstrip("/")
        self.tls = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        self.timeout = timeout
        self.seconds = patience
        self.headers = {"User-Agent": "taskqueue-client", **(headers or {})}
        self.sleep = sleep
        self.clock = clock
        self.kept: list[tuple[float, HTTPConnection]] = []
        self.lock = threading.Lock()

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
        longer: float = 0.0,
        repeatable: bool = True,
        lasting: bool = False,
    ) -> Answer:
        """Sends a request and returns its response; `body` is a value or JSON; `longer` adds seconds to the time limit.

        Raises Problem or Unreachable.
        """
        target = self.target(path, query)
        content = body if body is None or isinstance(body, bytes) else _encoded(body)
        sent = {**self.headers, **(headers or {})}
        if content is not None:
            sent["Content-Type"] = "application/json"
        patience = self.patience(lasting=lasting)
        while True:
            try:
                answer = self._once(method, target, content, sent, self.timeout + longer, repeatable)
            except LOST as error:
                may = repeatable or isinstance(error, ConnectionRefusedError)
                if not may or not patience.pause():
                    raise self.unreachable(error) from error
                continue
            if 200 <= answer.status < 300:
                return answer
            refusal = problem(answer.status, answer.body, answer.headers.get("Location"))
            may = may_pass(refusal) and (repeatable or refusal.status == _NOTHING_DONE)
            if not may or not patience.pause(retry_after(answer.headers)):
                raise refusal

    def target(self, path: str, query: Mapping[str, Any] | None = None) -> str:
        """Returns the path with prefix and query."""
        given = {name: value for name, value in (query or {}).items() if value is not None}
        return f"{self.prefix}{path}?{urlencode(given)}" if given else f"{self.prefix}{path}"

    def connect(self, timeout: float) -> HTTPConnection:
        """Opens a connection; `timeout` is the time limit of its responses, in seconds."""
        soon = min(timeout, CONNECT)
        connection = (
            HTTPConnection(self.host, self.port, timeout=soon)
            if self.tls is None
            else HTTPSConnection(self.host, self.port, timeout=soon, context=self.tls)
        )
        connection.connect()
        connection.sock.settimeout(timeout)
        return connection

    def unreachable(self, error: BaseException) -> Unreachable:
        """Returns the exception for a lost response."""
        reason = (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__
        return Unreachable(f"{self.url} does not answer ({reason}): check the address and that a gateway is running")

    def close(self) -> None:
        with self.lock:
            kept, self.kept = self.kept, []
        for _, connection in kept:
            connection.close()

    def _once(
        self, method: str, target: str, content: bytes | None, headers: Mapping[str, str], timeout: float, reuse: bool
    ) -> Answer:
        # The gateway may just have closed a reused connection, and then it is unknown what it has read.
        connection = (self._take(timeout) if reuse else None) or self.connect(timeout)
        try:
            connection.request(method, target, content, dict(headers))
            response = connection.getresponse()
            answer = Answer(response.status, response.headers, response.read())
        except BaseException:
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            self._keep(connection)
        return answer

    def _take(self, timeout: float) -> HTTPConnection | None:
        with self.lock:
            while self.kept:
                since, connection = self.kept.pop()
                if time.monotonic() - since < IDLE and connection.sock is not None:
                    connection.sock.settimeout(timeout)
                    return connection
                connection.close()
        return None

    def _keep(self, connection: HTTPConnection) -> None:
        with self.lock:
            if len(self.kept) < KEPT:
                self.kept.append((time.monotonic(), connection))
                return
        connection.close()


def _encoded(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def opened(response: HTTPResponse, media_type: str) -> HTTPResponse:
    """Returns a stream after checking its headers. Raises Problem if refused, NoGateway for another media type."""
    if not 200 <= response.status < 300:
        refusal = problem(response.status, response.read(), response.headers.get("Location"))
        refusal.document.setdefault("retry_after", retry_after(response.headers))
        raise refusal
    if response.status != 204 and response.headers.get_content_type() != media_type:
        raise NoGateway(f"HTTP {response.status} with {response.headers.get_content_type()}, not {media_type}")
    return response


def read_document(data: bytes | str) -> dict[str, Any]:
    """Parses a JSON object from a gateway. Raises NoGateway when the data is not one."""
    try:
        document = json.loads(data)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise NoGateway(f"it sent {data[:100]!r} instead of a JSON object")
    return document


def may_pass(refusal: Problem) -> bool:
    """Returns whether repeating the request may succeed."""
    return refusal.status in _AGAIN or refusal.type == _IN_PROGRESS


def retry_after(headers: HTTPMessage) -> float | None:
    """Returns the seconds in Retry-After, or None."""
    try:
        return max(0.0, float(headers.get("Retry-After", "")))
    except ValueError:
        return None  # absent, or a date, which gateways do not send
