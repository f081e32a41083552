"""Bounds of the fields of a task, for requests and for schedules in the configuration file."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from firmq.shared.domain.retry import MOST_PAUSES

_TEN_YEARS = 10 * 365 * 86400
HIGHEST_SCORE = 2**53
"""Up to here every whole number is exact, in JSON and in Redis."""


def _score(value: object) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= HIGHEST_SCORE
    if not number:
        raise ValueError(f"must be a number from 0 to {HIGHEST_SCORE}, the lower the sooner")
    return whole_if_it_is(value)  # type: ignore[arg-type]


def whole_if_it_is(value: float) -> float:
    """Returns a whole number as an int, which is written without a fraction."""
    return int(value) if value == int(value) else value


Timeout = Annotated[float, Field(strict=True, gt=0, le=7 * 86400)]
ExpiresIn = Annotated[float, Field(strict=True, gt=0, le=_TEN_YEARS)]
Retries = Annotated[int, Field(strict=True, ge=0, le=1000)]
RetrySeconds = Annotated[float, Field(strict=True, ge=0, le=_TEN_YEARS)]
Pauses = Annotated[list[RetrySeconds], Field(min_length=1, max_length=MOST_PAUSES)]
Multiplier = Annotated[float, Field(strict=True, ge=1, le=100)]
Score = Annotated[
    float,
    PlainValidator(_score),
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": HIGHEST_SCORE}),
]
Jitter = Annotated[float, Field(strict=True, ge=0, le=1)]
Events = Annotated[list[Literal["completed", "failed", "cancelled", "expired"]], Field(min_length=1, max_length=4)]

TAG = re.compile(r"[A-Za-z0-9_.:@/-]{1,64}")
MOST_TAGS = 16
MOST_TAGS_OF_A_SCHEDULE = MOST_TAGS - 1
"""A task of a schedule has one more: `schedule:NAME`."""
