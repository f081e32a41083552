"""How things look as text: durations, instants, JSON, and what must not be seen."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from shared.domain.sanitize import plain

HIDDEN = "••••••"
"""Begins what stands for a redacted value."""


def clip(value: object, most: int = 120) -> str:
    """The beginning of a text, for a line in a list."""
    text = plain(value)[: most + 1]
    return text if len(text) <= most else f"{text[: most - 1]}…"


def duration(value: timedelta | float | None) -> str:
    """Such as 340 ms, 12 s, 3 min 20 s, 2 h 5 min, 4 d 3 h."""
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
    """How long ago in one unit, so that the text does not flutter, or in how long."""
    if at is None:
        return "–"
    seconds = round((now - at).total_seconds())
    if abs(seconds) < 1:
        return "now"
    return f"{_long(_rough(seconds))} ago" if seconds > 0 else f"in {_long(-seconds)}"


def _rough(seconds: int) -> int:
    return next(seconds - seconds % size for size in (86_400, 3_600, 60, 1) if seconds >= size)


def exact(at: datetime) -> str:
    """The instant to the millisecond, in UTC; a script in the page turns it into the viewer's own time."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"


def size(count: float) -> str:
    """Bytes as a person reads them."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def pretty(value: Any) -> str:
    """JSON on lines of its own, safe to look at."""
    return plain(json.dumps(value, indent=2, ensure_ascii=False))


class Redaction:
    """Hides the values of fields by their names, in whatever depth, or by where they stand (`customer.iban`).

    Each placeholder has a number and a mark of what is seen beside it, so it stands for one hidden value of one record,
    wherever a person moves it, and for none when the record was changed meanwhile.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = _any_of(names)
        self.paths = _any_of([name for name in names if "." in name])

    def hides(self, name: str, path: str) -> bool:
        """Whether the value of a field is hidden; `path` is its name behind those of the fields that it is in."""
        return bool(self.names.match(name.lower()) or self.paths.match(path.lower()))

    def hide(self, value: Any) -> Any:
        """The value as it may be seen. Items of a list stand where the list stands."""
        return self._seen(value)[0]

    def restore(self, edited: Any, original: Any) -> Any:
        """What a person sent back, with what was hidden from them. Raises ValueError when that would be a guess.

        A hidden value goes to hidden fields only: under another name everybody would see it.
        """
        return self._restored(edited, "", self._seen(original)[1], False)

    def _seen(self, value: Any) -> tuple[Any, dict[str, Any]]:
        """The value as it may be seen, and what each placeholder in it stands for."""
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
        """`unseen` when a field around it is hidden."""
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
            raise ValueError(f"{edited[:60]} is nothing that is hidden here now: open the page anew, or write a value")
        if not unseen:
            raise ValueError(f"{inside[:-1] or 'the data'} is not a hidden field: {edited} would be seen by everybody")
        return hidden[edited]


def _any_of(globs: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(fnmatch.translate(each.lower()) for each in globs) or "(?!)")
