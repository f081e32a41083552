"""What a client raises: each error says what happened in words that its reader can act on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shared.errors import TaskQueueError

if TYPE_CHECKING:
    from shared.client.answers import Ended


class ClientError(TaskQueueError):
    """Task Queue could not do what was asked."""


class Unreachable(ClientError):
    """No gateway answers, and trying again for as long as the client may did not help."""


class NoGateway(Unreachable):
    """Something answers, but no gateway of Task Queue."""

    def __init__(self, answer: str) -> None:
        super().__init__(f"what answers at this address is no gateway ({answer}): is the address right?")


class NotInTime(ClientError):
    """What was waited for did not happen in time."""


class TaskFailed(ClientError):
    """The task ended, but not as completed; `ended` says how."""

    def __init__(self, ended: Ended) -> None:
        why = f": {ended.error.type}: {ended.error.message}" if ended.error else ""
        super().__init__(f"task {ended.task_id} is {ended.status}{why}")
        self.ended = ended


class Problem(ClientError):
    """A request was refused: `title`, `detail` and `type` are those of its problem document (RFC 9457)."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = dict(document)
        self.status = int(document.get("status", 500))
        self.type = str(document.get("type", "about:blank"))
        self.title = str(document.get("title", "Problem"))
        self.detail = str(document.get("detail", ""))
        super().__init__(f"{self.title}: {self.detail}" if self.detail else self.title)

    @property
    def errors(self) -> list[Mapping[str, Any]]:
        """Every field that is wrong, when fields are."""
        return list(self.document.get("errors") or ())


class NotFound(Problem):
    """There is no such task, batch, queue, schedule or lock (404)."""


class Conflict(Problem):
    """What is there already does not allow it (409)."""


class NotAllowed(Problem):
    """The API key is missing or not known (401), or is not for this (403)."""


class Refused(Problem):
    """What was sent is wrong, and would be refused again (400, 413, 415, 422)."""


class Unavailable(Problem):
    """It cannot be done now, but may be later (429, 503)."""


_KINDS = {401: NotAllowed, 403: NotAllowed, 404: NotFound, 409: Conflict, 429: Unavailable, 503: Unavailable}


def problem(status: int, body: bytes | Mapping[str, Any], location: str | None = None) -> Problem:
    """The error that an answer stands for; also when a proxy on the way answered, in words of its own."""
    if location and 300 <= status < 400:
        body = {"title": f"HTTP {status}", "detail": f"redirected to {location}: use the address of the gateway itself"}
    document = body if isinstance(body, Mapping) else _read(status, body)
    kind = _KINDS.get(status) or (Refused if 400 <= status < 500 else Problem)
    return kind({"status": status, **document})


def _read(status: int, body: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if isinstance(document, dict) and "title" in document:
        return document
    return {"title": f"HTTP {status}", "detail": body[:200].decode(errors="replace").strip()}
