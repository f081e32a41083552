"""Defines every kind of refused request and its problem document (RFC 9457).

`type` is a stable path: clients may branch on it, and `GET` of it explains it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flask import Response, g, has_request_context, request
from redis.exceptions import ResponseError
from werkzeug.exceptions import HTTPException

from taskqueue.shared.domain import strict_json
from taskqueue.shared.errors import (
    BatchBusy,
    BatchNotFound,
    BatchStopped,
    CorruptRecord,
    IllegalTransition,
    InvalidJSON,
    KeyBelongsToAnother,
    LockChanged,
    RequestInProgress,
    ScheduleNotFound,
    StoreRefused,
    StoreUnavailable,
    TaskNotFound,
    TaskQueueError,
)
from taskqueue.shared.redis.connections import anything_sent

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER = 1
"""Seconds after which a client may try again when Redis is unavailable or a queue is full."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of refusal. `meaning` explains the cause and the remedy."""

    slug: str
    status: int
    title: str
    meaning: str

    @property
    def type(self) -> str:
        return f"/problems/{self.slug}"


class Refusal(Exception):
    """A refused request; it is answered with a problem document."""

    def __init__(self, kind: Kind, detail: str, *, headers: Mapping[str, str] | None = None, **members: Any) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.headers = dict(headers or {})
        self.members = members


BAD_REQUEST = Kind("bad-request", 400, "Bad request", "The request cannot be read as HTTP.")
INVALID_JSON = Kind(
    "invalid-json",
    400,
    "Invalid JSON",
    "The body is not strict JSON in UTF-8; `detail` gives the place and the reason.",
)
NO_SUCH_PATH = Kind("no-such-path", 404, "No such path", "This path does not exist; GET / lists all paths.")
NOT_FOUND = Kind(
    "not-found", 404, "Not found", "The task, batch, type, queue or other object in the path does not exist."
)
FOREIGN = Kind(
    "another-site",
    403,
    "Another site",
    "A page of another site sent this request, or the header Host names another machine.",
)
KEY_MISSING = Kind(
    "key-required", 401, "Key required", "Send `Authorization: Bearer KEY` with an API key of this gateway."
)
KEY_UNKNOWN = Kind("key-unknown", 401, "Key unknown", "The API key is invalid or expired: request a new one.")
SCOPE = Kind(
    "scope-missing", 403, "Scope missing", "The API key lacks the scope for this request: use a key that has it."
)
METHOD = Kind("method-not-allowed", 405, "Method not allowed", "The header Allow lists the methods of this path.")
NOT_ACCEPTABLE = Kind(
    "not-acceptable", 406, "Not acceptable", "The header Accept excludes the media type of the response."
)
CONFLICT = Kind(
    "wrong-state", 409, "Wrong state", "The current state of the task, in `task_status`, does not allow this."
)
LOCK_CHANGED = Kind(
    "lock-changed", 409, "Lock changed", "The lock is free or held under another token: read it again first."
)
NOT_UNIQUE = Kind(
    "not-unique",
    409,
    "Not unique",
    "Another task holds the unique_key; `existing_task` is its id.",
)
IN_PROGRESS = Kind(
    "request-in-progress",
    409,
    "Request in progress",
    "The first request with this Idempotency-Key is still in progress: try again after Retry-After.",
)
BATCH_STOPPED = Kind(
    "batch-stopped",
    409,
    "Batch stopped",
    "The batch accepts no more tasks: it was closed; or it was cancelled or stopped by its failures, and then none of "
    "its tasks starts.",
)
BATCH_BUSY = Kind(
    "batch-busy", 409, "Batch busy", "A cancel or retry of all its tasks is in progress: try again later."
)
TOO_LARGE = Kind("too-large", 413, "Body too large", "Send less, or store the data elsewhere and send its address.")
MEDIA = Kind("unsupported-media-type", 415, "Unsupported media type", "Send application/json without compression.")
INVALID = Kind("invalid-request", 422, "Invalid request", "`errors` lists every invalid field and its valid values.")
UNKNOWN_TYPE = Kind(
    "unknown-task-type",
    422,
    "Unknown task type",
    "`known_types` lists the types that workers offer: the first 200, or 20 for a task of a batch.",
)
KEY_REUSED = Kind(
    "idempotency-key-reused",
    422,
    "Idempotency-Key reused",
    "A different request was sent with this Idempotency-Key: use a new key for a new request.",
)
NOT_THE_SAME = Kind(
    "place-is-taken",
    422,
    "Place is taken",
    "A different task was sent at this index of the batch, or under this name.",
)
NO_PARENT = Kind(
    "missing-parent", 422, "Missing parent", "A task in depends_on does not exist, or its retention has ended."
)
QUEUE_FULL = Kind("queue-full", 429, "Queue full", "Try again after Retry-After, or use another priority.")
RATE = Kind("rate-limited", 429, "Rate limited", "The API key has used up its rate: try again after Retry-After.")
ASKED_TOO_OFTEN = Kind(
    "asked-too-often",
    429,
    "Asked too often",
    "As many examinations as allowed are in progress: try again after Retry-After.",
)
HEADERS_TOO_LARGE = Kind("headers-too-large", 431, "Headers too large", "Send fewer or shorter headers.")
NOT_IMPLEMENTED = Kind("not-implemented", 501, "Not implemented", "Only the transfer coding chunked is supported.")
INTERNAL = Kind(
    "internal-error", 500, "Internal error", "The gateway failed; its log has the error under `request_id`."
)
CORRUPT = Kind("corrupt-record", 500, "Corrupt record", "The record stored under this id or name cannot be read.")
BUSY = Kind(
    "too-many-streams", 503, "Too many streams", "The maximum number of event streams is open: try again later."
)
STORE = Kind(
    "store-unavailable",
    503,
    "Store unavailable",
    "Redis does not answer. `detail` states whether the request may have taken effect; it can be resent safely with "
    "the same Idempotency-Key.",
)
STORE_REFUSED = Kind(
    "store-refuses-writes", 503, "Store refuses writes", "Redis is full, read-only or loading: try again later."
)
NO_TYPES = Kind(
    "no-task-types", 503, "No task types", "No worker has registered its task types yet: start one, then try again."
)

NO_WORKER = Kind(
    "no-worker",
    503,
    "No worker",
    "No live worker offers this task type, and the gateway rejects such tasks (REFUSE_WITHOUT_WORKER).",
)

KINDS = {
    kind.slug: kind
    for kind in (
        BAD_REQUEST, INVALID_JSON, NO_SUCH_PATH, NOT_FOUND, METHOD, NOT_ACCEPTABLE, CONFLICT, LOCK_CHANGED, NOT_UNIQUE,
        IN_PROGRESS, TOO_LARGE, MEDIA, INVALID, UNKNOWN_TYPE, KEY_REUSED, QUEUE_FULL, HEADERS_TOO_LARGE, INTERNAL,
        CORRUPT, NOT_IMPLEMENTED, STORE, STORE_REFUSED, NO_TYPES,
        NO_WORKER, NO_PARENT, NOT_THE_SAME, BATCH_STOPPED, BATCH_BUSY,
        BUSY, FOREIGN, KEY_MISSING, KEY_UNKNOWN, SCOPE, RATE, ASKED_TOO_OFTEN,
    )
}  # fmt: skip

_BY_STATUS = {404: NO_SUCH_PATH, 405: METHOD, 413: TOO_LARGE, 415: MEDIA}


def invalid(errors: list[dict[str, str]], kind: Kind = INVALID, **members: Any) -> Refusal:
    """Returns a refusal that lists the mistake in each field."""
    shown = "; ".join(f"{_where(error)}: {error['detail']}" for error in errors[:3])
    more = f"; and {len(errors) - 3} more" if len(errors) > 3 else ""
    return Refusal(kind, shown + more, errors=errors, **members)


def field_error(path: tuple[str | int, ...], detail: str) -> dict[str, str]:
    """Returns the error of a body member: its place as JSON pointer and in readable form, and what it must be."""
    pointer = "#" + "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)
    return {"pointer": _clipped(pointer), "field": _clipped(_dotted(path)), "detail": detail}


def parameter_error(name: str, detail: str) -> dict[str, str]:
    """Returns the error of a query parameter."""
    return {"parameter": _clipped(name), "detail": detail}


def refusal_of(error: Exception) -> Refusal:
    """Returns the refusal that answers any error."""
    match error:
        case Refusal():
            return error
        case StoreUnavailable():
            return _of_store(error)
        case HTTPException():
            return _of_http(error)
        case (
            CorruptRecord()
            | IllegalTransition()
            | InvalidJSON()
            | KeyBelongsToAnother()
            | ScheduleNotFound()
            | BatchNotFound()
            | BatchBusy()
            | TaskNotFound()
        ):
            return _of_task(error)
        case RequestInProgress():
            wait = str(error.about.get("seconds", RETRY_AFTER))
            return Refusal(IN_PROGRESS, str(error), headers={"Retry-After": wait})
        case LockChanged():
            return Refusal(LOCK_CHANGED, str(error))
        case ResponseError() if "WRONGTYPE" in str(error):
            return Refusal(CORRUPT, "the key of this task does not hold a record")
        case _:
            log.error("request failed", exc_info=error, extra={"request_id": g.get("request_id")})
            return Refusal(INTERNAL, f"internal error: the log of the gateway has it under {g.get('request_id')}")


def of_unreadable(status: int, detail: str) -> Refusal:
    """Returns the refusal of a request that could not be parsed."""
    kinds = (BAD_REQUEST, TOO_LARGE, HEADERS_TOO_LARGE, NOT_IMPLEMENTED)
    kind = next((each for each in kinds if each.status == status), INTERNAL)
    return Refusal(kind, _DETAILS.get(kind, detail))


def _of_store(error: StoreUnavailable) -> Refusal:
    headers = {"Retry-After": str(RETRY_AFTER)}
    if isinstance(error, StoreRefused):
        return Refusal(STORE_REFUSED, str(error), headers=headers)
    return Refusal(STORE, f"{str(error).rstrip('.')}. {_whether_done()}".rstrip(), headers=headers)


def _whether_done() -> str:
    """Returns whether a change without a reply of Redis may have taken effect; "" for a request that only reads."""
    if has_request_context() and request.method in ("GET", "HEAD"):
        return ""
    if anything_sent():
        return "The request may have taken effect: check, or resend it with the same Idempotency-Key"
    return "Nothing was changed"


def _of_task(error: TaskQueueError) -> Refusal:
    if isinstance(error, BatchNotFound | BatchBusy):
        return _of_batch(error)
    if isinstance(error, InvalidJSON):
        return Refusal(INVALID_JSON, str(error))
    if isinstance(error, TaskNotFound):
        return Refusal(NOT_FOUND, "no task has this id: it never existed, or its retention has ended")
    if isinstance(error, IllegalTransition):
        kind = BATCH_STOPPED if isinstance(error, BatchStopped) else CONFLICT
        return Refusal(kind, str(error), task_status=error.about.get("state"))
    if isinstance(error, ScheduleNotFound):
        return Refusal(NOT_FOUND, "no schedule has this name: GET /schedules lists them")
    if isinstance(error, KeyBelongsToAnother):
        return Refusal(KEY_REUSED, str(error))
    return Refusal(CORRUPT, str(error))


def _of_batch(error: TaskQueueError) -> Refusal:
    if isinstance(error, BatchNotFound):
        return Refusal(NOT_FOUND, "no batch has this id: it never existed, or all its tasks have been removed")
    return Refusal(BATCH_BUSY, "an earlier cancel or retry of this batch is still in progress: try again later")


def respond(refusal: Refusal) -> Response:
    """Returns the response to the current request."""
    body = document(refusal, instance=request.path, request_id=g.get("request_id"))
    response = Response(body, refusal.kind.status, content_type=MEDIA_TYPE)
    response.headers.update(refusal.headers)
    return response


def document(refusal: Refusal, *, instance: str, request_id: str | None) -> bytes:
    """Returns the problem document as JSON."""
    body = {
        "type": refusal.kind.type,
        "title": refusal.kind.title,
        "status": refusal.kind.status,
        "detail": refusal.detail,
        "instance": _clipped(instance, 256),
        "request_id": request_id,
        **refusal.members,
    }
    return strict_json.dump_anything(body) + b"\n"


def _of_http(error: HTTPException) -> Refusal:
    kind = _BY_STATUS.get(error.code or 500, BAD_REQUEST if (error.code or 500) < 500 else INTERNAL)
    headers = {name: value for name, value in error.get_headers() if name in ("Allow", "Retry-After")}
    return Refusal(kind, _DETAILS.get(kind, error.description or kind.meaning), headers=headers)


_DETAILS = {
    NO_SUCH_PATH: "this path does not exist: GET / lists all paths",
    METHOD: "this path does not support this method: the header Allow lists the supported ones",
    TOO_LARGE: (
        "the body exceeds MAX_BODY_BYTES: send less, store the data elsewhere and send its address, or raise the limit"
    ),
}


def _where(error: Mapping[str, str]) -> str:
    return error.get("field") or error.get("parameter") or "the body"


def _dotted(path: tuple[str | int, ...]) -> str:
    """Formats a path such as data.items[2].name."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def _clipped(text: str, most: int = 200) -> str:
    return text if len(text) <= most else text[:most] + "…"
