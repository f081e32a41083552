"""The results of the doctor's checks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check: the observation, and advice unless all is well."""

    check: str
    level: Level
    seen: str
    advice: str = ""


def fine(check: str, seen: str) -> Finding:
    return Finding(check=check, level=Level.OK, seen=seen)


def doubtful(check: str, seen: str, advice: str) -> Finding:
    """Returns a warning: the system works, but is at risk."""
    return Finding(check=check, level=Level.WARNING, seen=seen, advice=advice)


def wrong(check: str, seen: str, advice: str) -> Finding:
    """Returns an error: tasks are not accepted, not run, or not safe."""
    return Finding(check=check, level=Level.ERROR, seen=seen, advice=advice)


def worst(findings: Iterable[Finding]) -> Level:
    """Returns the most severe level of the findings."""
    order = list(Level)
    return max((each.level for each in findings), key=order.index, default=Level.OK)
