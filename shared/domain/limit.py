"""A limit: how many tasks of a type, or with a key, may run at once, and how many may start in a time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*/\s*(\d+(?:\.\d+)?)?\s*(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_NAME = re.compile(r"(?:type:[A-Za-z0-9][A-Za-z0-9._-]{0,99}|key:[A-Za-z0-9._-]{1,100})")
_FIELDS = ("concurrency", "rate", "burst")
BURST_SECONDS = 0.25
"""Seconds of a rate that may start at once after a pause where no burst is set; at least one task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """At most `concurrency` at once; at most `count` in `per` seconds, `burst` of them at once after a pause.

    With neither it is no limit, which overrides a declared one.
    """

    concurrency: int | None = None
    count: float | None = None
    per: float | None = None
    burst: float | None = None

    @property
    def rate(self) -> str | None:
        """Returns the rate as text: 10/s, 100/m, 1/10s."""
        if self.count is None or self.per is None:
            return None
        for unit in ("d", "h", "m", "s"):
            if self.per % _UNITS[unit] == 0:
                many = self.per / _UNITS[unit]
                return f"{self.count:g}/{'' if many == 1 else f'{many:g}'}{unit}"
        return f"{self.count:g}/{self.per * 1000:g}ms"

    def __str__(self) -> str:
        parts = {"concurrency": self.concurrency, "rate": self.rate, "burst": self.burst if self.rate else None}
        return ", ".join(f"{name} {value}" for name, value in parts.items() if value is not None) or "no limit"


def read_limit(given: Mapping[str, Any]) -> Limit:
    """Returns a limit from its fields: concurrency, rate such as "10/s" and burst. Raises ValueError."""
    unknown = set(given) - set(_FIELDS)
    if unknown:
        raise ValueError(f"{', '.join(sorted(unknown))} is unknown: use {', '.join(_FIELDS)}")
    concurrency, burst = given.get("concurrency"), given.get("burst")
    if concurrency is not None and (isinstance(concurrency, bool) or not isinstance(concurrency, int)):
        raise ValueError(f"concurrency must be a whole number, got {concurrency!r}")
    if concurrency is not None and not 0 <= concurrency <= 1_000_000:
        raise ValueError(f"concurrency must be from 0 to 1000000, got {concurrency}")
    limit = Limit(concurrency=concurrency)
    if given.get("rate") is None:
        if burst is not None:
            raise ValueError("burst needs a rate: set rate, or remove burst")
        return limit
    count, per = read_rate(given["rate"])
    return replace(limit, count=count, per=per, burst=_burst(burst, count / per))


def _burst(given: Any, per_second: float) -> float:
    if given is None:
        return max(1.0, per_second * BURST_SECONDS)
    if isinstance(given, bool) or not isinstance(given, int | float) or not 1 <= given <= 1_000_000:
        raise ValueError(f"burst must be a number from 1 to 1000000, got {given!r}")
    return float(given)


def read_rate(value: object) -> tuple[float, float]:
    """Returns how many in how many seconds, from "10/s", "100/m", "1/10s". Raises ValueError."""
    match = _RATE.fullmatch(value.strip()) if isinstance(value, str) else None
    count, per = (float(match[1]), float(match[2] or 1) * _UNITS[match[3]]) if match else (0.0, 0.0)
    if not (0 < count <= 1_000_000 and 0.001 <= per <= 366 * 86400):
        raise ValueError(f'rate must look like "10/s", "100/m" or "1/10s", got {value!r}')
    return count, per


def check_name(name: str) -> str:
    """Returns the name. Raises ValueError unless it names a limit."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a limit: use type:NAME or key:NAME")
    return name
