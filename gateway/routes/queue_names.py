"""The checks of queues that requests name."""

from __future__ import annotations

from collections.abc import Collection, Container

from firmq.shared.domain import validation_messages
from firmq.shared.submission import refusals
from firmq.shared.submission.refusals import Refusal


def demand_queue(name: str, field: str, queues: Container[str]) -> None:
    """Raises Refusal: 422 for a queue that does not exist; tasks cannot be moved there."""
    if name not in queues:
        text = f"names no queue, got {name}: use one of GET /queues"
        raise refusals.invalid([refusals.field_error((field,), text)])


def known_queue(name: str, queues: Collection[str], default_priority: str) -> str:
    """Returns the queue of a path; `default` is an alias of DEFAULT_PRIORITY's. Raises Refusal (404)."""
    queue = default_priority if name == "default" else name
    if queue not in queues:
        known = validation_messages.choices(queues)
        raise Refusal(refusals.NOT_FOUND, f"no queue is named {name}: use one of {known}")
    return queue
