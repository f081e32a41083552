"""The check of a queue to which tasks are moved."""

from __future__ import annotations

from collections.abc import Container

from firmq.shared.submission import refusals


def demand_queue(name: str, field: str, queues: Container[str]) -> None:
    """Raises Refusal: 422 for a queue that does not exist; tasks cannot be moved there."""
    if name not in queues:
        text = f"names no queue, got {name}: use one of GET /queues"
        raise refusals.invalid([refusals.field_error((field,), text)])
