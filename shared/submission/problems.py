"""Exceptions of the client."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from firmq.shared.errors import FirmqError

if TYPE_CHECKING:
    from firmq.shared.submission.answers import Ended


class ClientError(FirmqError):
    """A call of the client failed."""


class Unreachable(ClientError):
    """No gateway answers, and retries for the client's patience did not help."""


class NoGateway(Unreachable):
    """The server at this address is not a gateway of Firmq."""

    def __init__(self, answer: str) -> None:
        super().__init__(f"the server at this address is not a gateway ({answer}): check the address")


class NotInTime(ClientError):
    """The time limit of a wait was exceeded."""


class TaskFailed(ClientError):
    """The task ended in another state than completed; `ended` has the details."""

    def __init__(self, ended: Ended) -> None:
        why = f": {ended.error.type}: {ended.error.message}" if ended.error else ""
        super().__init__(f"task {ended.task_id} is {ended.status}{why}")
        self.ended = ended


class Problem(ClientError):
    """A request was refused: `title`, `detail` and `type` are from its problem document (RFC 9457)."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = dict(document)
        self.status = int(document.get("status", 500))
        self.type = str(document.get("type", "about:blank"))
        self.title = str(document.get("title", "Problem"))
        self.detail = str(document.get("detail", ""))
        super().__init__(f"{self.title}: {self.detail}" if self.detail else self.title)

    @property
    def errors(self) -> list[Mapping[str, Any]]:
        """Returns the invalid fields, if any."""
        errors = self.document.get("errors")
        return errors if isinstance(errors, list) else []


class NotFound(Problem):
    """The task, batch, queue, schedule or lock does not exist (404)."""


class Conflict(Problem):
    """The current state does not allow the request (409)."""


class NotAllowed(Problem):
    """The API key is missing or invalid (401), or lacks the scope (403)."""


class Refused(Problem):
    """The request is invalid; repeating it does not help (400, 413, 415, 422)."""


class Unavailable(Problem):
    """The request cannot be served now, but may be later (429, 503)."""


_KINDS = {401: NotAllowed, 403: NotAllowed, 404: NotFound, 409: Conflict, 429: Unavailable, 503: Unavailable}


def problem(status: int, body: bytes | Mapping[str, Any], location: str | None = None) -> Problem:
    """Returns the exception for a response, including one from a proxy that is not a problem document."""
    if location and 300 <= status < 400:
        body = {"title": f"HTTP {status}", "detail": f"redirected to {location}: use the address of the gateway itself"}
    document = body if isinstance(body, Mapping) else _read(status, body)
    kind = _KINDS.get(status) or (Refused if 400 <= status < 500 else Problem)
    return kind({**document, "status": status})


def _read(status: int, body: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict) and "title" in document:
        return document
    return {"title": f"HTTP {status}", "detail": body[:200].decode(errors="replace").strip()}
