"""Bounds of the fields of a task, for requests and for schedules in the configuration file."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field

from taskqueue.shared.domain.retry import MOST_PAUSES

_TEN_YEARS = 10 * 365 * 86400

Timeout = Annotated[float, Field(strict=True, gt=0, le=7 * 86400)]
ExpiresIn = Annotated[float, Field(strict=True, gt=0, le=_TEN_YEARS)]
Retries = Annotated[int, Field(strict=True, ge=0, le=1000)]
RetrySeconds = Annotated[float, Field(strict=True, ge=0, le=_TEN_YEARS)]
Pauses = Annotated[list[RetrySeconds], Field(min_length=1, max_length=MOST_PAUSES)]
Multiplier = Annotated[float, Field(strict=True, ge=1, le=100)]
Jitter = Annotated[float, Field(strict=True, ge=0, le=1)]
Events = Annotated[list[Literal["completed", "failed", "cancelled", "expired"]], Field(min_length=1, max_length=4)]

TAG = re.compile(r"[A-Za-z0-9_.:@/-]{1,64}")
KEY = re.compile(r"[A-Za-z0-9_.:@/-]{1,128}")
LIMIT_KEY = re.compile(r"[A-Za-z0-9._-]{1,100}")
MOST_TAGS = 16
MOST_TAGS_OF_A_SCHEDULE = MOST_TAGS - 1
"""A task of a schedule has one more: `schedule:NAME`."""
