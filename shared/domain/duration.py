"""Durations as text."""

from __future__ import annotations

from datetime import timedelta


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
    return in_units(round(seconds))


def in_units(seconds: int) -> str:
    """Returns whole seconds in at most two units."""
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    for at, (name, size) in enumerate(units):
        if seconds >= size:
            rest = seconds % size // units[at + 1][1] if at + 1 < len(units) else 0
            return f"{seconds // size} {name} {rest} {units[at + 1][0]}" if rest else f"{seconds // size} {name}"
    return "0 s"
