"""Every way in which a request can be refused, and the one JSON shape of them all (RFC 9457).

`type` is a stable address: clients may branch on it, and `GET` of it explains it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flask import Response, g, has_request_context, request
from redis.exceptions import ResponseError
from werkzeug.exceptions import HTTPException

from shared.domain import strict_json
from shared.errors import (
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
from shared.redis.connections import anything_sent

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER = 1
"""Seconds after which a caller may try again when Redis is away or a queue is full."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of refusal. `meaning` says what it is about and what the caller can do."""

    slug: str
    status: int
    title: str
    meaning: str

    @property
    def type(self) -> str:
        return f"/problems/{self.slug}"


class Refusal(Exception):
    """A request that is not carried out; becomes a problem document."""

    def __init__(self, kind: Kind, detail: str, *, headers: Mapping[str, str] | None = None, **members: Any) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.headers = dict(headers or {})
        self.members = members


BAD_REQUEST = Kind("bad-request", 400, "Bad request", "The request cannot be read as HTTP.")
INVALID_JSON = Kind(
    "invalid-json", 400, "Invalid JSON", "The body is not strict JSON in UTF-8; `detail` says where and why."
)
NO_SUCH_PATH = Kind("no-such-path", 404, "No such path", "Nothing lives at this address; GET / lists what there is.")
NOT_FOUND = Kind("not-found", 404, "Not found", "What the path names (a task, batch, type, queue, …) does not exist.")
FOREIGN = Kind(
    "another-site", 403, "Another site", "A page of another site sent this, or the header Host names another machine."
)
KEY_MISSING = Kind(
    "key-required", 401, "Key required", "Send `Authorization: Bearer KEY` with a key that this gateway knows."
)
KEY_UNKNOWN = Kind(
    "key-unknown", 401, "Key unknown", "The key is not one of this gateway's, or not any more: ask for a new one."
)
SCOPE = Kind("scope-missing", 403, "Scope missing", "The key is good, but not for this: ask for one with this scope.")
METHOD = Kind("method-not-allowed", 405, "Method not allowed", "The header Allow lists the methods of this address.")
NOT_ACCEPTABLE = Kind("not-acceptable", 406, "Not acceptable", "The header Accept rules out what this address answers.")
CONFLICT = Kind("wrong-state", 409, "Wrong state", "The task's present state, in `task_status`, does not allow this.")
LOCK_CHANGED = Kind(
    "lock-changed", 409, "Lock changed", "The lock is free, or another token holds it: look at it again first."
)
NOT_UNIQUE = Kind(
    "not-unique",
    409,
    "Not unique",
    "Another task holds the unique_key: `existing_task` says which.",
)
IN_PROGRESS = Kind(
    "request-in-progress",
    409,
    "Request in progress",
    "The first request with this key is not answered yet: try again.",
)
BATCH_STOPPED = Kind(
    "batch-stopped",
    409,
    "Batch stopped",
    "The batch was cancelled, or stopped by its failures: it takes no more tasks, and none of its tasks starts.",
)
BATCH_BUSY = Kind("batch-busy", 409, "Batch busy", "A cancel or retry of all its tasks is going on: try again later.")
TOO_SLOW = Kind(
    "too-slow", 408, "Too slow", "No whole line of a stream came for a while: send the rest with another request."
)
TOO_LARGE = Kind("too-large", 413, "Body too large", "Send less, or put the data elsewhere and send its address.")
MEDIA = Kind("unsupported-media-type", 415, "Unsupported media type", "Send application/json, not compressed.")
INVALID = Kind("invalid-request", 422, "Invalid request", "`errors` names every field and what it must be.")
UNKNOWN_TYPE = Kind(
    "unknown-task-type",
    422,
    "Unknown task type",
    "`known_types` lists types that workers offer: the first 200, for a task of a batch the first 20.",
)
KEY_REUSED = Kind(
    "idempotency-key-reused",
    422,
    "Idempotency-Key reused",
    "A new request needs a new Idempotency-Key.",
)
NOT_THE_SAME = Kind(
    "place-is-taken", 422, "Place is taken", "Another task was sent at this place of the batch, or under this name."
)
NO_PARENT = Kind(
    "missing-parent", 422, "Missing parent", "A task that it depends on does not exist, or its retention is over."
)
QUEUE_FULL = Kind("queue-full", 429, "Queue full", "Try again after the time in Retry-After, or another priority.")
RATE = Kind("rate-limited", 429, "Rate limited", "The key may send no more for now: try again after Retry-After.")
ASKED_TOO_OFTEN = Kind(
    "asked-too-often", 429, "Asked too often", "Others are having this looked at just now: ask after Retry-After."
)
CROWDED = Kind(
    "too-many-bodies", 503, "Too many bodies", "More is being sent at a time than is kept: send it again, and faster."
)
HEADERS_TOO_LARGE = Kind("headers-too-large", 431, "Headers too large", "Send fewer or shorter headers.")
NOT_IMPLEMENTED = Kind("not-implemented", 501, "Not implemented", "A transfer coding other than chunked is not read.")
INTERNAL = Kind("internal-error", 500, "Internal error", "A fault of ours: the log has it under `request_id`.")
CORRUPT = Kind("corrupt-record", 500, "Corrupt record", "What is stored under this id or name cannot be read.")
BUSY = Kind("too-many-streams", 503, "Too many streams", "As many streams are open as may be: try again later.")
STORE = Kind(
    "store-unavailable",
    503,
    "Store unavailable",
    "Redis does not answer. `detail` says whether it may have been done all the same; with the same Idempotency-Key it "
    "can be sent again without harm.",
)
STORE_REFUSED = Kind(
    "store-refuses-writes", 503, "Store refuses writes", "Redis is full, read-only or loading. Try again later."
)
NO_TYPES = Kind(
    "no-task-types", 503, "No task types", "No worker has registered its task types yet: start one, then try again."
)

NO_WORKER = Kind(
    "no-worker",
    503,
    "No worker",
    "No live worker has this task type, and the gateway is set to refuse such tasks (REFUSE_WITHOUT_WORKER).",
)

KINDS = {
    kind.slug: kind
    for kind in (
        BAD_REQUEST, INVALID_JSON, NO_SUCH_PATH, NOT_FOUND, METHOD, NOT_ACCEPTABLE, CONFLICT, LOCK_CHANGED, NOT_UNIQUE,
        IN_PROGRESS, TOO_LARGE, MEDIA, INVALID, UNKNOWN_TYPE, KEY_REUSED, QUEUE_FULL, HEADERS_TOO_LARGE, INTERNAL,
        CORRUPT, NOT_IMPLEMENTED, STORE, STORE_REFUSED, NO_TYPES,
        NO_WORKER, NO_PARENT, NOT_THE_SAME, BATCH_STOPPED, BATCH_BUSY,
        BUSY, FOREIGN, KEY_MISSING, KEY_UNKNOWN, SCOPE, RATE, TOO_SLOW, CROWDED, ASKED_TOO_OFTEN,
    )
}  # fmt: skip

_BY_STATUS = {404: NO_SUCH_PATH, 405: METHOD, 413: TOO_LARGE, 415: MEDIA}


def invalid(errors: list[dict[str, str]], kind: Kind = INVALID, **members: Any) -> Refusal:
    """A refusal that names what is wrong with each field."""
    shown = "; ".join(f"{_where(error)}: {error['detail']}" for error in errors[:3])
    more = f"; and {len(errors) - 3} more" if len(errors) > 3 else ""
    return Refusal(kind, shown + more, errors=errors, **members)


def field_error(path: tuple[str | int, ...], detail: str) -> dict[str, str]:
    """What is wrong with a member of the body: where, as a JSON pointer and for people, and what it must be."""
    pointer = "#" + "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)
    return {"pointer": _clipped(pointer), "field": _clipped(_dotted(path)), "detail": detail}


def parameter_error(name: str, detail: str) -> dict[str, str]:
    """What is wrong with a parameter of the query."""
    return {"parameter": _clipped(name), "detail": detail}


def refusal_of(error: Exception) -> Refusal:
    """What a caller is told about any error."""
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
            return Refusal(INTERNAL, f"something failed here; the log has it under {g.get('request_id')}")


def _of_store(error: StoreUnavailable) -> Refusal:
    headers = {"Retry-After": str(RETRY_AFTER)}
    if isinstance(error, StoreRefused):
        return Refusal(STORE_REFUSED, str(error), headers=headers)
    return Refusal(STORE, f"{str(error).rstrip('.')}. {_whether_done()}".rstrip(), headers=headers)


def _whether_done() -> str:
    """What is known of a change that Redis gave no answer to; nothing of a request that only reads."""
    if has_request_context() and request.method in ("GET", "HEAD"):
        return ""
    if anything_sent():
        return "It may have been done all the same: look, or send it again with the same Idempotency-Key"
    return "Nothing was changed"


def _of_task(error: TaskQueueError) -> Refusal:
    if isinstance(error, BatchNotFound | BatchBusy):
        return _of_batch(error)
    if isinstance(error, InvalidJSON):
        return Refusal(INVALID_JSON, str(error))
    if isinstance(error, TaskNotFound):
        return Refusal(NOT_FOUND, "no task has this id: it never existed, or its retention is over")
    if isinstance(error, IllegalTransition):
        kind = BATCH_STOPPED if isinstance(error, BatchStopped) else CONFLICT
        return Refusal(kind, str(error), task_status=error.about.get("state"))
    if isinstance(error, ScheduleNotFound):
        return Refusal(NOT_FOUND, "there is no schedule of this name: GET /schedules lists them")
    if isinstance(error, KeyBelongsToAnother):
        return Refusal(KEY_REUSED, str(error))
    return Refusal(CORRUPT, str(error))


def _of_batch(error: TaskQueueError) -> Refusal:
    if isinstance(error, BatchNotFound):
        return Refusal(NOT_FOUND, "no batch has this id: it never existed, or all its tasks have been removed")
    return Refusal(BATCH_BUSY, "an earlier cancel or retry of this batch is still going on")


def respond(refusal: Refusal) -> Response:
    """The answer to the request at hand."""
    body = document(refusal, instance=request.path, request_id=g.get("request_id"))
    response = Response(body, refusal.kind.status, content_type=MEDIA_TYPE)
    response.headers.update(refusal.headers)
    return response


def document(refusal: Refusal, *, instance: str, request_id: str | None) -> bytes:
    """The problem document."""
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
    NO_SUCH_PATH: "nothing lives at this path: GET / lists the addresses there are",
    METHOD: "this address does not know this method: the header Allow lists those it knows",
    TOO_LARGE: (
        "the body is larger than this server takes: send less, store the data elsewhere and send its address, or raise "
        "MAX_BODY_BYTES"
    ),
}


def _where(error: Mapping[str, str]) -> str:
    return error.get("field") or error.get("parameter") or "the body"


def _dotted(path: tuple[str | int, ...]) -> str:
    """data.items[2].name"""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def _clipped(text: str, most: int = 200) -> str:
    return text if len(text) <= most else text[:most] + "…"
