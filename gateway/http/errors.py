"""Defines every kind of refused request and its problem document (RFC 9457).

`type` is a stable path: clients may branch on it, and `GET` of it explains it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from flask import Response, current_app, g, has_request_context, request
from redis.exceptions import ResponseError
from werkzeug.exceptions import HTTPException

from firmq.shared.domain import strict_json
from firmq.shared.errors import BatchBusy, BatchNotFound, LockChanged, ScheduleNotFound, TooManyAtOnce
from firmq.shared.redis.connections import anything_sent
from firmq.shared.submission import refusals
from firmq.shared.submission.refusals import Kind, Refusal

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"


NO_SUCH_PATH = Kind("no-such-path", 404, "No such path", "This path does not exist; GET / lists all paths.")
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
LOCK_CHANGED = Kind(
    "lock-changed", 409, "Lock changed", "The lock is free or held under another token: read it again first."
)
BATCH_BUSY = Kind(
    "batch-busy", 409, "Batch busy", "A cancel or retry of all its tasks is in progress: try again later."
)
MEDIA = Kind("unsupported-media-type", 415, "Unsupported media type", "Send application/json without compression.")
RATE = Kind("rate-limited", 429, "Rate limited", "The API key has used up its rate: try again after Retry-After.")
ASKED_TOO_OFTEN = Kind(
    "asked-too-often",
    429,
    "Asked too often",
    "As many examinations, large readings or bulk actions as allowed are in progress: try again after Retry-After.",
)
HEADERS_TOO_LARGE = Kind("headers-too-large", 431, "Headers too large", "Send fewer or shorter headers.")
NOT_IMPLEMENTED = Kind("not-implemented", 501, "Not implemented", "Only the transfer coding chunked is supported.")
INTERNAL = Kind(
    "internal-error", 500, "Internal error", "The gateway failed; its log has the error under `request_id`."
)
BUSY = Kind(
    "too-many-streams", 503, "Too many streams", "The maximum number of event streams is open: try again later."
)


KINDS = {
    kind.slug: kind
    for kind in (
        *refusals.KINDS, NO_SUCH_PATH, METHOD, NOT_ACCEPTABLE, LOCK_CHANGED, MEDIA, HEADERS_TOO_LARGE,
        INTERNAL, NOT_IMPLEMENTED, BATCH_BUSY, BUSY, FOREIGN, KEY_MISSING, KEY_UNKNOWN, SCOPE, RATE, ASKED_TOO_OFTEN,
    )
}  # fmt: skip

_BY_STATUS = {404: NO_SUCH_PATH, 405: METHOD, 413: refusals.TOO_LARGE, 415: MEDIA}


def parameter_error(name: str, detail: str) -> dict[str, str]:
    """Returns the error of a query parameter."""
    return {"parameter": refusals.clipped(name), "detail": detail}


_OF_RESOURCES: Mapping[type[Exception], tuple[Kind, str]] = {
    ScheduleNotFound: (refusals.NOT_FOUND, "no schedule has this name: GET /schedules lists them"),
    BatchNotFound: (
        refusals.NOT_FOUND,
        "no batch has this id: it never existed, or all its tasks have been removed",
    ),
    BatchBusy: (BATCH_BUSY, "an earlier cancel or retry of this batch is still in progress: try again later"),
}


def refusal_of(error: Exception) -> Refusal:
    """Returns the refusal that answers any error."""
    match error:
        case Refusal():
            return error
        case HTTPException():
            return _of_http(error)
        case ScheduleNotFound() | BatchNotFound() | BatchBusy():
            return Refusal(*_OF_RESOURCES[type(error)])
        case TooManyAtOnce():
            return Refusal(ASKED_TOO_OFTEN, str(error), headers={"Retry-After": str(refusals.RETRY_AFTER)})
        case LockChanged():
            return Refusal(LOCK_CHANGED, str(error))
        case ResponseError() if "WRONGTYPE" in str(error):
            return Refusal(refusals.CORRUPT, "the key of this task does not hold a record")
    found = refusals.refusal_of(error)
    if found is None:
        log.error("request failed", exc_info=error, extra={"request_id": g.get("request_id")})
        return Refusal(INTERNAL, f"internal error: search the gateway's log for {g.get('request_id')}")
    return _with_effect(found) if found.kind is refusals.STORE else found


def of_unreadable(status: int, detail: str, most: int) -> Refusal:
    """Returns the refusal of a request that could not be parsed; `most` is how many bytes its body may have."""
    kinds = (refusals.BAD_REQUEST, refusals.TOO_LARGE, HEADERS_TOO_LARGE, NOT_IMPLEMENTED)
    kind = next((each for each in kinds if each.status == status), INTERNAL)
    return Refusal(kind, refusals.body_too_large(most) if kind is refusals.TOO_LARGE else _DETAILS.get(kind, detail))


def _with_effect(refusal: Refusal) -> Refusal:
    """Adds whether a change may have taken effect; a request that only reads has none."""
    if has_request_context() and request.method in ("GET", "HEAD"):
        return refusal
    return refusals.unfinished(refusal, anything_sent())


def respond(refusal: Refusal) -> Response:
    """Returns the response to the current request."""
    body = document(refusal, instance=request.path, request_id=g.get("request_id"))
    response = Response(body, refusal.kind.status, content_type=MEDIA_TYPE)
    response.headers.update(refusal.headers)
    return response


def document(refusal: Refusal, *, instance: str, request_id: str | None) -> bytes:
    """Returns the problem document as JSON."""
    about = {"instance": refusals.clipped(instance, 256), "request_id": request_id}
    body = {**refusal.head, **about, **refusal.members}
    return strict_json.dump_anything(body) + b"\n"


def _of_http(error: HTTPException) -> Refusal:
    kind = _BY_STATUS.get(error.code or 500, refusals.BAD_REQUEST if (error.code or 500) < 500 else INTERNAL)
    headers = {name: value for name, value in error.get_headers() if name in ("Allow", "Retry-After")}
    if kind is refusals.TOO_LARGE:
        return Refusal(kind, refusals.body_too_large(current_app.config["MAX_CONTENT_LENGTH"]), headers=headers)
    return Refusal(kind, _DETAILS.get(kind, error.description or kind.meaning), headers=headers)


_DETAILS = {
    NO_SUCH_PATH: "this path does not exist: GET / lists all paths",
    METHOD: "this path does not support this method: the header Allow lists the supported ones",
}
