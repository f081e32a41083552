"""Responses of a gateway, and the retries that they permit."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from firmq.shared.submission.problems import NoGateway, Problem, Unreachable

if TYPE_CHECKING:
    from http.client import HTTPMessage

_IN_PROGRESS = "/problems/request-in-progress"
NOTHING_DONE = 429
_AGAIN = (408, NOTHING_DONE, 503)
LEAST_PAUSE = 0.1
"""Minimum seconds before a request is repeated."""


class NoTurn(Unreachable, TimeoutError):
    """A request was not sent, because other calls of the client occupy the connections that it may use."""


def random_key() -> str:
    """Returns a new Idempotency-Key."""
    return os.urandom(16).hex()


class OwnKey:
    """The Idempotency-Key of a request for which the caller gave none.

    It is regenerated while each response states that nothing was changed: the next one may lead
    to another Redis, which answers. After any other failure the task may be stored under it, and it stays.
    """

    def __init__(self, make: Callable[[], str] | None) -> None:
        """Without `make` there is none."""
        self.make = make
        self.headers = {"Idempotency-Key": make()} if make else {}

    def keep(self) -> None:
        """Keeps the key from here on."""
        self.make = None

    def renew(self, refusal: Problem) -> None:
        """Makes another key if the response allows it."""
        if not refusal.document.get("unchanged"):
            self.keep()
        elif self.make:
            self.headers = {"Idempotency-Key": self.make()}


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

    @property
    def items(self) -> list[dict[str, Any]]:
        """Returns the items of a list. Raises NoGateway when the body is none."""
        items = self.document["items"]
        if not isinstance(items, list) or not all(isinstance(each, dict) for each in items):
            raise NoGateway(f"it sent {self.body[:100]!r} instead of a list of JSON objects")
        return items


def read_document(data: bytes | str) -> dict[str, Any]:
    """Parses a JSON object from a gateway. Raises NoGateway when the data is not one."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise NoGateway(f"it sent {data[:100]!r} instead of a JSON object")
    return _Document(document)


class _Document(dict[str, Any]):
    """A JSON object from a gateway."""

    def __missing__(self, name: str) -> Any:
        raise NoGateway(f"it sent a JSON object without {name!r}")


def may_pass(refusal: Problem) -> bool:
    """Returns whether repeating the request may succeed."""
    return refusal.status in _AGAIN or refusal.type == _IN_PROGRESS


def retry_after(value: object) -> float | None:
    """Returns the seconds in a Retry-After header or a `retry_after` field, at least LEAST_PAUSE, or None."""
    try:
        seconds = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None  # absent, or a date, which gateways do not send
    return max(LEAST_PAUSE, seconds)  # in this order, which replaces nan too


def unreachable(url: str, error: BaseException) -> Unreachable:
    """Returns the exception for a lost response."""
    if isinstance(error, NoTurn):
        return Unreachable(str(error))
    named = "timed out" if isinstance(error, TimeoutError) else type(error).__name__
    reason = (error.strerror if isinstance(error, OSError) else "") or str(error) or named
    return Unreachable(f"{url} does not answer ({reason}): check the address and that a gateway is running")
