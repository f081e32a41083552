"""The partition of a page: the one of the id in its path, else the browser's choice. Pure."""

from __future__ import annotations

import re
from collections.abc import Container
from functools import cache

from firmq.dashboard.feature import features

READINESS = "/health/ready"
OF_NONE = re.compile(rf"/health/live|{READINESS}|/metrics")
"""Paths that are requested often and show no partition."""
NUMBER = "firmq.partition"
"""The key of the number of the partition that is shown, in the environment of a request."""
_NUMBER = re.compile(r"[0-9]{1,4}")


def read_choice(said: str, numbers: Container[int]) -> int | None:
    """Returns the partition that a cookie or a path names, or None."""
    return int(said) if _NUMBER.fullmatch(said) and int(said) in numbers else None


@cache
def _pages_of_id() -> re.Pattern[str]:
    pages = "|".join(["tasks", "batches", *(each for feature in features() for each in feature.pages_of_id)])
    return re.compile(rf"/(?:{pages})/(?!review$)([A-Za-z0-9_-]{{1,128}})(?:/.*)?")


def id_in(path: str) -> str | None:
    """Returns the id in the path of a page about what only one partition has; None for another page."""
    found = _pages_of_id().fullmatch(path)
    return found[1] if found else None
