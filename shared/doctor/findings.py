"""What an examination brings to light."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How much it matters."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check: what was seen, and, unless all is well, what to do."""

    check: str
    level: Level
    seen: str
    advice: str = ""


def fine(check: str, seen: str) -> Finding:
    return Finding(check=check, level=Level.OK, seen=seen)


def doubtful(check: str, seen: str, advice: str) -> Finding:
    """It works today, and will hurt one day."""
    return Finding(check=check, level=Level.WARNING, seen=seen, advice=advice)


def wrong(check: str, seen: str, advice: str) -> Finding:
    """Tasks are not taken, not run, or not safe."""
    return Finding(check=check, level=Level.ERROR, seen=seen, advice=advice)


def worst(findings: Iterable[Finding]) -> Level:
    """The level of all of them together."""
    order = list(Level)
    return max((each.level for each in findings), key=order.index, default=Level.OK)
