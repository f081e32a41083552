"""Formats durations, times, sizes and JSON for pages, and redacts fields."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from taskqueue.shared.domain.sanitize import plain

HIDDEN = "••••••"
"""The beginning of the placeholder of a redacted value."""


def clip(value: object, most: int = 120) -> str:
    """Returns the text in one line, cut to `most` characters."""
    text = plain(value)[: most + 1]
    return text if len(text) <= most else f"{text[: most - 1]}…"


def duration(value: timedelta | float | None) -> str:
    """Returns a duration in two units: 340 ms, 12 s, 3 min 20 s, 2 h 5 min, 4 d 3 h. A number is in seconds."""
    if value is None:
        return "–"
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    seconds = max(0.0, seconds)
    if seconds < 0.0995:
        return f"{seconds * 1000:.1f} ms" if seconds < 0.01 else f"{seconds * 1000:.0f} ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    return _long(round(seconds))


def _long(seconds: int) -> str:
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    for at, (name, size) in enumerate(units):
        if seconds >= size:
            rest = seconds % size // units[at + 1][1] if at + 1 < len(units) else 0
            return f"{seconds // size} {name} {rest} {units[at + 1][0]}" if rest else f"{seconds // size} {name}"
    return "0 s"


def ago(at: datetime | None, now: datetime) -> str:
    """Returns the distance from now in one unit, so that the text is stable: "5 min ago", "in 12 s"."""
    if at is None:
        return "–"
    seconds = round((now - at).total_seconds())
    if abs(seconds) < 1:
        return "now"
    return f"{_long(_rough(seconds))} ago" if seconds > 0 else f"in {_long(-seconds)}"


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


def as_command(url: str, task_type: str, data: Any, queue: str) -> str:
    """Returns a shell command that submits the same task again, with the key in `TASKQUEUE_API_KEY` if it is set."""
    body = json.dumps({"type": task_type, "data": data, "queue": queue})
    quoted = body.replace("'", "'\\''")
    key = '${TASKQUEUE_API_KEY:+"-HAuthorization: Bearer $TASKQUEUE_API_KEY"}'
    return f"curl -X POST {url}/tasks {key} -H 'Content-Type: application/json' -d '{quoted}'"


class Redaction:
    """Hides the values of fields by name, at any depth, or by path (`customer.iban`).

    Each placeholder has a number and a digest of the visible values, so it stands for one hidden value of one record,
    even if it is moved while editing, and is invalid if the record was changed meanwhile.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = _any_of(names)
        self.paths = _any_of([name for name in names if "." in name])

    def hides(self, name: str, path: str) -> bool:
        """Returns whether a field is hidden; `path` is its name after the names of the fields that contain it."""
        return bool(self.names.match(name.lower()) or self.paths.match(path.lower()))

    def hide(self, value: Any) -> Any:
        """Returns the value with placeholders. Items of a list have the path of the list."""
        return self._seen(value)[0]

    def restore(self, edited: Any, original: Any) -> Any:
        """Returns the edited value with the hidden values restored. Raises ValueError if a placeholder is ambiguous.

        A hidden value may move to hidden fields only: under another name it would be visible.
        """
        return self._restored(edited, "", self._seen(original)[1], False)

    def _seen(self, value: Any) -> tuple[Any, dict[str, Any]]:
        """Returns the value with placeholders, and the hidden value of each placeholder."""
        hidden: dict[str, Any] = {}
        seen = self._replaced(value, "", hidden, "")
        if hidden:
            mark = hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()[:6]
            hidden = {}
            seen = self._replaced(value, "", hidden, f"-{mark}")
        return seen, hidden

    def _replaced(self, value: Any, inside: str, hidden: dict[str, Any], mark: str) -> Any:
        if isinstance(value, list):
            return [self._replaced(part, inside, hidden, mark) for part in value]
        if not isinstance(value, dict):
            return value
        seen = {}
        for name, part in value.items():
            path = f"{inside}{name}"
            if part is not None and self.hides(name, path):
                seen[name] = f"{HIDDEN}#{len(hidden) + 1}{mark}"
                hidden[seen[name]] = part
            else:
                seen[name] = self._replaced(part, f"{path}.", hidden, mark)
        return seen

    def _restored(self, edited: Any, inside: str, hidden: Mapping[str, Any], unseen: bool) -> Any:
        """Restores one value; `unseen` means that an enclosing field is hidden."""
        if isinstance(edited, list):
            return [self._restored(part, inside, hidden, unseen) for part in edited]
        if isinstance(edited, dict):
            return {
                name: self._restored(part, f"{inside}{name}.", hidden, unseen or self.hides(name, f"{inside}{name}"))
                for name, part in edited.items()
            }
        if not isinstance(edited, str) or HIDDEN not in edited:
            return edited
        if edited not in hidden:
            raise ValueError(f"{edited[:60]} is not a current placeholder: reload the page, or enter a value")
        if not unseen:
            raise ValueError(f"{inside[:-1] or 'the data'} is not hidden, so {edited} would be visible: move it back")
        return hidden[edited]


def _any_of(globs: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(fnmatch.translate(each.lower()) for each in globs) or "(?!)")
