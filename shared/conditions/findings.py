"""The results of checks: the conditions as doctor and health checks report them, and what a check adds itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from firmq.shared.conditions import conditions

if TYPE_CHECKING:
    from firmq.shared.conditions.observation import Observation

SHOWN = 5
"""Names in a finding."""


class Level(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


_LEVELS = {conditions.Level.WARNING: Level.WARNING, conditions.Level.DANGER: Level.ERROR}


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


def judged(now: Observation, *checks: str) -> list[Finding]:
    """Returns a finding for each alert whose condition belongs to one of these checks."""
    return [
        Finding(check=check, level=_LEVELS[each.level], seen=_plain(each.title), advice=_plain(each.advice))
        for each in conditions.alerts(now)
        if (check := conditions.conditions()[each.name].check) in checks
    ]


def judged_or_fine(now: Observation, check: str, seen: str) -> list[Finding]:
    """Returns the findings of one check; without any, that all is well."""
    return judged(now, check) or [fine(check, seen)]


def _plain(text: str) -> str:
    """Returns the text of an alert without prefix and full stop, beginning in lower case."""
    sentence = text.removeprefix("Redis: ").removesuffix(".")
    return sentence[:1].lower() + sentence[1:]


def listed(names: Iterable[str]) -> str:
    """Returns the first of some names in order, and how many more there are."""
    given = sorted(names)
    more = len(given) - SHOWN
    return ", ".join(given[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def worst(findings: Iterable[Finding]) -> Level:
    """Returns the most severe level of the findings."""
    order = list(Level)
    return max((each.level for each in findings), key=order.index, default=Level.OK)
