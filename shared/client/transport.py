"""Requests to a gateway: connections that are kept, time limits, and trying again where that is safe.

What is sent again, after the time that the answer names: everything that was answered 429, for nothing was changed; and
after a 503, which may say that it was done all the same, or a lost answer, only what may arrive twice without harm. All
of it ends after `patience` seconds: soon for what somebody else may be waiting behind, as in a web request.
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
"""Seconds of patience with a single request, and with what takes its time anyway, unless the caller says."""
CONNECT = 2.0
"""Seconds within which a connection is made: a host that is gone drops what is sent to it."""
KEPT = 8
"""Connections that are kept for the next request."""
IDLE = 30.0
"""Seconds for which one is kept; a gateway closes it after a minute."""
_IN_PROGRESS = "/problems/request-in-progress"
_NOTHING_DONE = 429
_AGAIN = (408, _NOTHING_DONE, 503)
LOST = (OSError, HTTPException)
"""What is raised when an answer does not come."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: HTTPMessage
    body: bytes

    @property
    def document(self) -> dict[str, Any]:
        """Raises NoGateway when it is none."""
        return read_document(self.body)


class Patience:
    """How long somebody goes on trying, and the pauses between."""

    def __init__(self, seconds: float, sleep: Callable[[float], None], clock: Callable[[], float]) -> None:
        self.seconds = seconds
        self.sleep = sleep
        self.clock = clock
        self.renew()

    def renew(self) -> None:
        """Something got on."""
        self.until = self.clock() + self.seconds
        self.tries = 0

    def pause(self, wished: float | None = None) -> bool:
        """Waits before the next try; False, at once, when there is no time for one."""
        seconds = min(5.0, 0.1 * 2**self.tries) if wished is None else wished
        # Those who were refused together should not come back together.
        seconds *= 1 + random.random() / 4
        self.tries += 1
        if self.clock() + seconds > self.until:
            return False
        self.sleep(seconds)
        return True


class Transport:
    """One gateway, or several behind one address. May be used by several threads."""

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
        if "@" in url:  # said before anything quotes the address
            raise ValueError(
                "the address of a gateway holds no user and no password: leave out what is before the @, and give the "
                "API key as api_key or TASKQUEUE_API_KEY"
            )
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the address of a gateway is like http://localhost:8000, got {url!r}")
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
        """The answer to a request, which may take `longer` than others. Raises Problem, or Unreachable."""
        target = self.target(path, query)
        content = None if body is None else json.dumps(body, allow_nan=False, separators=(",", ":")).encode()
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
        """The path as it is sent."""
        given = {name: value for name, value in (query or {}).items() if value is not None}
        return f"{self.prefix}{path}?{urlencode(given)}" if given else f"{self.prefix}{path}"

    def connect(self, timeout: float) -> HTTPConnection:
        """A new connection; `timeout` is for the answers on it."""
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
        """Why no answer came."""
        reason = (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__
        return Unreachable(f"{self.url} does not answer ({reason}): is a gateway running there?")

    def close(self) -> None:
        with self.lock:
            kept, self.kept = self.kept, []
        for _, connection in kept:
            connection.close()

    def _once(
        self, method: str, target: str, content: bytes | None, headers: Mapping[str, str], timeout: float, reuse: bool
    ) -> Answer:
        # A kept connection may have been closed by the other side just now, and then nobody knows what it has read.
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


def opened(response: HTTPResponse, media_type: str) -> HTTPResponse:
    """A stream of this type, from its headers on. Raises Problem when it is refused, NoGateway when it is another."""
    if not 200 <= response.status < 300:
        refusal = problem(response.status, response.read(), response.headers.get("Location"))
        refusal.document.setdefault("retry_after", retry_after(response.headers))
        raise refusal
    if response.status != 204 and response.headers.get_content_type() != media_type:
        raise NoGateway(f"HTTP {response.status} with {response.headers.get_content_type()}, not {media_type}")
    return response


def read_document(data: bytes | str) -> dict[str, Any]:
    """The JSON object that a gateway says. Raises NoGateway when it is none."""
    try:
        document = json.loads(data)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise NoGateway(f"no JSON object, but {data[:100]!r}")
    return document


def may_pass(refusal: Problem) -> bool:
    """Whether the same request may be answered otherwise in a moment."""
    return refusal.status in _AGAIN or refusal.type == _IN_PROGRESS


def retry_after(headers: HTTPMessage) -> float | None:
    """How long an answer asks to wait."""
    try:
        return max(0.0, float(headers.get("Retry-After", "")))
    except ValueError:
        return None  # there is none, or it is a date, which nobody here sends
