"""Which partition a page shows: that of the id in its path, else the one that the browser has chosen. Pure."""

from __future__ import annotations

import re
from collections.abc import Container

OF_ID = re.compile(r"/(?:tasks|batches|bulk)/(?!review$)([A-Za-z0-9_-]{1,128})(?:/.*)?")
"""Pages about what only one partition has."""
READINESS = "/health/ready"
OF_NONE = re.compile(rf"/health/live|{READINESS}|/metrics")
"""What is asked often and shows no partition."""
SHOWN = "firmq.shown"
"""The key of the number of the partition that is shown, in the environment of a request."""
_NUMBER = re.compile(r"[0-9]{1,4}")


def read_choice(said: str, numbers: Container[int]) -> int | None:
    """Returns the partition that a cookie or a path names, or None."""
    return int(said) if _NUMBER.fullmatch(said) and int(said) in numbers else None
