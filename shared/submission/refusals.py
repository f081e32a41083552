"""Defines the refusals of submissions, with the same texts for a gateway and for a direct submission."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from firmq.shared.errors import (
    BatchStopped,
    CorruptRecord,
    IllegalTransition,
    InvalidJSON,
    KeyBelongsToAnother,
    NotPlaced,
    PayloadUnavailable,
    QueueFull,
    RequestInProgress,
    StoreRefused,
    StoreUnavailable,
    TaskNotFound,
)

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

    @property
    def problem(self) -> dict[str, Any]:
        """Returns its problem document (RFC 9457)."""
        return {**self.head, **self.members}

    @property
    def head(self) -> dict[str, Any]:
        """Returns the members that every problem document has."""
        return {"type": self.kind.type, "title": self.kind.title, "status": self.kind.status, "detail": self.detail}


BAD_REQUEST = Kind("bad-request", 400, "Bad request", "The request cannot be read as HTTP.")
INVALID_JSON = Kind(
    "invalid-json",
    400,
    "Invalid JSON",
    "The body is not strict JSON in UTF-8; `detail` gives the place and the reason.",
)
NOT_FOUND = Kind(
    "not-found", 404, "Not found", "The task, batch, type, queue or other object in the path does not exist."
)
CONFLICT = Kind(
    "wrong-state", 409, "Wrong state", "The current state of the task, in `task_status`, does not allow this."
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
TOO_LARGE = Kind("too-large", 413, "Body too large", "Send less, or store the data elsewhere and send its address.")
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
    "missing-parent",
    422,
    "Missing parent",
    "A task in depends_on does not exist, its retention has ended, or it is in another partition: submit both tasks "
    "with the same placement_key.",
)
QUEUE_FULL = Kind("queue-full", 429, "Queue full", "Try again after Retry-After, or use another queue.")
TOO_MANY_QUEUES = Kind(
    "too-many-queues",
    409,
    "Too many queues",
    "The queue does not exist, and MAX_QUEUES allows no more: use one of GET /queues, or raise MAX_QUEUES.",
)
CORRUPT = Kind("corrupt-record", 500, "Corrupt record", "The record stored under this id or name cannot be read.")
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
PAYLOAD_STORE = Kind(
    "payload-store-unavailable",
    503,
    "Payload store unavailable",
    "The store of large data and results cannot be used, or lacks this payload: nothing was changed, try again.",
)
NO_PLACE = Kind(
    "no-partition",
    503,
    "No partition",
    "No partition may store this task now: those that could are draining. `firmq partitions` lists them.",
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

KINDS = (
    BAD_REQUEST,
    INVALID_JSON,
    NOT_FOUND,
    CONFLICT,
    NOT_UNIQUE,
    IN_PROGRESS,
    BATCH_STOPPED,
    TOO_LARGE,
    INVALID,
    UNKNOWN_TYPE,
    KEY_REUSED,
    NOT_THE_SAME,
    NO_PARENT,
    QUEUE_FULL,
    TOO_MANY_QUEUES,
    CORRUPT,
    STORE,
    STORE_REFUSED,
    PAYLOAD_STORE,
    NO_PLACE,
    NO_TYPES,
    NO_WORKER,
)
UNCHANGED = "unchanged"
"""The member of a problem document that is true when Redis did not answer and nothing was changed."""
CHECKS = (INVALID, UNKNOWN_TYPE, NO_TYPES, NO_WORKER)
"""Refusals by validation alone, before the Idempotency-Key is looked up."""


def body_too_large(most: int) -> str:
    """Returns the advice for a body of more than these bytes."""
    return (
        f"the body has more than {most:,} bytes (MAX_BODY_BYTES): send less, store the data elsewhere and send its "
        "address, or raise the limit; PAYLOAD_STORE keeps data above PAYLOAD_THRESHOLD out of Redis"
    )


def invalid(errors: list[dict[str, str]], kind: Kind = INVALID, **members: Any) -> Refusal:
    """Returns a refusal that lists the mistake in each field."""
    shown = "; ".join(f"{_where(error)}: {error['detail']}" for error in errors[:3])
    more = f"; and {len(errors) - 3} more" if len(errors) > 3 else ""
    return Refusal(kind, shown + more, errors=errors, **members)


def field_error(path: tuple[str | int, ...], detail: str) -> dict[str, str]:
    """Returns the error of a body member: its place as JSON pointer and in readable form, and the requirement."""
    pointer = "#" + "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)
    return {"pointer": clipped(pointer), "field": clipped(_dotted(path)), "detail": detail}


def unavailable(error: StoreUnavailable | PayloadUnavailable | NotPlaced) -> Refusal:
    """Returns the refusal of a request that may be accepted later."""
    return Refusal(_unavailable(error), str(error), headers={"Retry-After": str(RETRY_AFTER)})


def refusal_of(error: Exception) -> Refusal | None:
    """Returns the refusal that answers an error of the stores; None for an error that is not one of these."""
    match error:
        case StoreUnavailable() | PayloadUnavailable() | NotPlaced():
            return unavailable(error)
        case InvalidJSON():
            return Refusal(INVALID_JSON, str(error))
        case TaskNotFound():
            text = "it never existed, its retention has ended, or no relay has sent it from an outbox yet"
            return Refusal(NOT_FOUND, f"no task has this id: {text}")
        case IllegalTransition():
            kind = BATCH_STOPPED if isinstance(error, BatchStopped) else CONFLICT
            return Refusal(kind, str(error), task_status=error.about.get("state"))
        case KeyBelongsToAnother():
            return Refusal(KEY_REUSED, str(error))
        case RequestInProgress() | QueueFull():
            kind = QUEUE_FULL if isinstance(error, QueueFull) else IN_PROGRESS
            wait = str(error.about.get("seconds", RETRY_AFTER))
            return Refusal(kind, str(error), headers={"Retry-After": wait})
        case CorruptRecord():
            return Refusal(CORRUPT, str(error))
    return None


def _unavailable(error: StoreUnavailable | PayloadUnavailable | NotPlaced) -> Kind:
    if isinstance(error, NotPlaced):
        return NO_PLACE
    if isinstance(error, PayloadUnavailable):
        return PAYLOAD_STORE
    return STORE_REFUSED if isinstance(error, StoreRefused) else STORE


def unfinished(refusal: Refusal, sent: bool) -> Refusal:
    """Returns a refusal that also states whether a change without a reply of Redis may have taken effect."""
    maybe = "The request may have taken effect: check, or resend it with the same Idempotency-Key"
    effect = maybe if sent else "Nothing was changed"
    members = refusal.members if sent else {**refusal.members, UNCHANGED: True}
    return Refusal(refusal.kind, f"{refusal.detail.rstrip('.')}. {effect}", headers=refusal.headers, **members)


def _where(error: Mapping[str, str]) -> str:
    return error.get("field") or error.get("parameter") or "the body"


def _dotted(path: tuple[str | int, ...]) -> str:
    """Formats a path such as data.items[2].name."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def clipped(text: str, most: int = 200) -> str:
    return text if len(text) <= most else text[:most] + "…"
