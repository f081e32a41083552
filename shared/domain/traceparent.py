"""The trace of a task, as W3C `traceparent` in its meta; and the names of well-known spans.

OpenTelemetry is not needed here, so tracing costs nothing where it is off.

The span id of an attempt is computed from the task's id and the attempt's number instead of being random. So the next
attempt can be linked to it, a dead letter be put under it, and a housekeeper can report an attempt whose worker was
killed before it could send anything, without storing or passing on the id.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from hashlib import blake2b
from secrets import token_hex

TRACEPARENT = "traceparent"
REPLAY, REPLAY_AFTER = "replay", "replay_after"
"""In the meta of a task retried from the dead letters: the span that retried it, and the last attempt before."""

_SAMPLED = frozenset("13579bdf")
"""Last digits of a `traceparent` whose lowest flag (sampled) is set."""
_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The task that a span describes."""

    id: str
    type: str
    queue: str
    attempt: int = 0

    def attributes(self, operation: str, kind: str = "") -> dict[str, str | int]:
        """Returns attributes by the conventions for messaging; `kind` is the operation type, if they define one."""
        found: dict[str, str | int] = {
            "messaging.system": "firmq",
            "messaging.operation.name": operation,
            "messaging.destination.name": self.queue,
            "messaging.message.id": self.id,
            "firmq.task.type": self.type,
        }
        if kind:
            found["messaging.operation.type"] = kind
        if self.attempt:
            found["firmq.task.attempt"] = self.attempt
        return found


def checked(given: object) -> str | None:
    """Returns a given `traceparent`; None for an invalid one, which the standard requires to be ignored."""
    return given if isinstance(given, str) and _FORM.fullmatch(given) else None


def read_traceparent(meta: str | bytes) -> str | None:
    """Returns the one in a task's metadata; None also where that is corrupt."""
    try:
        found = json.loads(meta) if meta else None
    except (ValueError, RecursionError):
        return None
    return checked(found.get(TRACEPARENT)) if isinstance(found, dict) else None


def is_sampled(traceparent: str | None) -> bool:
    """Returns whether the trace of a `traceparent` is sampled, without parsing the rest."""
    return traceparent is not None and traceparent[-1:] in _SAMPLED


def trace_id(traceparent: str | None) -> str | None:
    """Returns the trace's id as 32 hexadecimal digits."""
    return traceparent[3:35] if traceparent and len(traceparent) >= 55 else None


def unsampled() -> str:
    """Returns a trace that is not sampled, so that called services do not sample it either."""
    return f"00-{token_hex(16)}-{token_hex(8)}-00"


def attempt_span(task_id: str, attempt: int) -> int:
    """Returns the id of the span of an attempt."""
    return _id(f"attempt {attempt} of {task_id}")


def dead_letter_span(task_id: str, attempt: int) -> int:
    """Returns the id of the span that marks an attempt as the last one."""
    return _id(f"dead letter after attempt {attempt} of {task_id}")


def _id(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) or 1
