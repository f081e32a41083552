"""Formats durations, times, sizes and JSON for pages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from firmq.shared.domain.duration import in_units
from firmq.shared.domain.sanitize import plain
from firmq.shared.domain.task import as_given

if TYPE_CHECKING:
    from firmq.shared.domain.task import TaskDetail


def clip(value: object, most: int = 120) -> str:
    """Returns the text in one line, cut to `most` characters."""
    text = plain(value)[: most + 1]
    return text if len(text) <= most else f"{text[: most - 1]}…"


def ago(at: datetime | None, now: datetime) -> str:
    """Returns the distance from now in one unit, so that the text is stable: "5 min ago", "in 12 s"."""
    if at is None:
        return "–"
    seconds = round((now - at).total_seconds())
    if abs(seconds) < 1:
        return "now"
    return f"{in_units(_rough(seconds))} ago" if seconds > 0 else f"in {in_units(-seconds)}"


def _rough(seconds: int) -> int:
    return next(seconds - seconds % size for size in (86_400, 3_600, 60, 1) if seconds >= size)


def exact(at: datetime) -> str:
    """Returns the time to the millisecond, in UTC; a script in the page converts it to local time."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"


def size(count: float) -> str:
    """Returns a number of bytes with a unit: 512 B, 1.5 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def pretty(value: Any) -> str:
    """Returns indented JSON with special characters escaped."""
    return plain(json.dumps(value, indent=2, ensure_ascii=False))


def options_of_copy(task: TaskDetail) -> dict[str, Any]:
    """Returns the options of a copy of a task, without the tag of a schedule: that would count it as a run of it."""
    found = {
        "queue": task.summary.queue,
        "tags": [each for each in task.summary.tags if not each.startswith("schedule:")],
        "timeout": task.timeout and task.timeout.total_seconds(),
        "retry": dict(task.retry),
        **as_given(task),
    }
    return {name: value for name, value in found.items() if value or value == 0}


def as_command(url: str, task_type: str, data: Any, options: Mapping[str, Any]) -> str:
    """Returns a shell command that submits the same task again, with the key in `FIRMQ_API_KEY` if it is set."""
    body = json.dumps({"type": task_type, "data": data, **options})
    quoted = body.replace("'", "'\\''")
    key = '${FIRMQ_API_KEY:+"-HAuthorization: Bearer $FIRMQ_API_KEY"}'
    return f"curl -X POST {url}/tasks {key} -H 'Content-Type: application/json' -d '{quoted}'"
