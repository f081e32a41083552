"""Which partitions a page shows: what the browser has chosen, and what the path says. Pure."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import NamedTuple

OF_ID = re.compile(r"/(?:tasks|batches)/([A-Za-z0-9_-]{1,128})(?:/.*)?")
"""Pages about what only one partition has."""
OF_BULK = re.compile(r"/bulk/(?!review$)[A-Za-z0-9_-]{1,128}(?:/.*)?")
"""Pages about a bulk action, which may be one over all partitions."""
OF_ALL = re.compile(
    r"/|/(?:tasks|batches|suggestions|breakdown|breakdown\.csv|sign-in|sign-out)/?"
    r"|/(?:partitions|dead-letters|bulk|keys|static|sign-in)(?:/.*)?"
)
"""Pages that show all partitions when these are chosen."""
READINESS = "/health/ready"
OF_NONE = re.compile(rf"/health/live|{READINESS}|/metrics")
"""What is asked often and shows no partition."""
SHOWN = "firmq.shown"
"""The key of what is shown (`Shown`) in the environment of a request."""
_SAID = re.compile(r"([0-9]{1,4})|(all)(?:-([0-9]{1,4}))?")


class Choice(NamedTuple):
    """What a browser has chosen: all partitions or one, and the one that pages of one partition show."""

    all: bool = True
    number: int | None = None

    def __str__(self) -> str:
        return "all" if self.number is None else f"all-{self.number}" if self.all else str(self.number)


class Shown(NamedTuple):
    """What a page shows: one partition, or all when `number` is None; and whether the id in its path decides that."""

    choice: Choice
    number: int | None = None
    by_id: bool = False


def read_choice(said: str, numbers: Container[int]) -> Choice | None:
    """Returns the choice that a cookie or a path says: `2`, `all`, or `all-2`; None for one of no partition."""
    found = _SAID.fullmatch(said)
    if found is None:
        return None
    one = found[1] or found[3]
    return Choice(bool(found[2]), int(one) if one else None) if one is None or int(one) in numbers else None
