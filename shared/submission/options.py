"""Options of a submission and their JSON form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict, Unpack

Seconds = float | timedelta


class Options(TypedDict, total=False):
    """The fields of POST /tasks except type and data; durations in seconds or as timedelta."""

    queue: str | None
    priority: str | None
    delay: Seconds | None
    run_at: datetime | None
    expires_in: Seconds | None
    timeout: Seconds | None
    max_retries: int | None
    retry: Mapping[str, float | Sequence[float]] | None
    tags: Iterable[str] | None
    unique_key: str | None
    unique_until: Literal["start", "end"] | Seconds | None
    on_conflict: Literal["refuse", "existing", "replace"] | None
    depends_on: Iterable[str | int | Mapping[str, Any]] | None
    on_parent_failure: Literal["cancel", "release", "wait"] | None
    placement_key: str | None
    webhook: Mapping[str, Any] | None
    limit_key: str | None
    fair_key: str | None
    score: float | None


def new_task(
    task_type: str, data: Any = None, *, item: str | None = None, **options: Unpack[Options]
) -> dict[str, Any]:
    """Returns a task of a batch; other tasks can depend on it by the name `item`."""
    named = {"item": item} if item is not None else {}
    return {"type": task_type, "data": data, **named, **plain(options)}


def plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options in JSON form without those that are None. Raises ValueError for a datetime without time zone."""
    return {name: _plain(value) for name, value in options.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{value} has no time zone: use an aware datetime, such as datetime.now(UTC)")
        return value.isoformat()
    if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        return list(value)
    return value
