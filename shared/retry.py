"""When a task that failed is tried again: the policy decides, the worker acts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from random import Random

_MOST = 1e9
"""Seconds, or times: three decades."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Exponential backoff: 5, 10 and 20 seconds with the defaults, then the dead letters.

    `max_retries` does not count the first attempt, so a task runs `max_retries + 1` times at most. Delays are in
    seconds. `jitter` spreads each delay over [delay * (1 - jitter), delay * (1 + jitter)]; off by default, so that
    the documented delays hold to the letter.
    """

    max_retries: int = 3
    initial_delay: float = 5.0
    multiplier: float = 2.0
    max_delay: float = 3600.0
    jitter: float = 0.0

    def __post_init__(self) -> None:
        """Raises ValueError or TypeError for what nobody can wait for: it may come out of a damaged record."""
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, bool) or not 0 <= value <= _MOST:  # also false for nan
                raise ValueError(f"{each.name} is {str(value)[:40]}: nothing from 0 to {_MOST:g}")

    def delay(self, failures: int, random: Random | None = None) -> timedelta | None:
        """How long to wait after the `failures`-th failure (counted from 1), or None when it was the last chance."""
        if failures > self.max_retries:
            return None
        # A huge exponent overflows to an error in Python; the cap is reached long before.
        try:
            seconds = self.initial_delay * self.multiplier ** (failures - 1)
        except OverflowError:
            seconds = self.max_delay
        seconds = min(seconds, self.max_delay)
        if self.jitter and random is not None:
            seconds *= 1 + self.jitter * random.uniform(-1, 1)
        return timedelta(seconds=seconds)

    def override(self, changes: Mapping[str, float] | None) -> RetryPolicy:
        """The same policy with some fields changed by name; a name that is no field is ignored.

        Ignoring lets an older worker run the tasks of a newer gateway. Raises one of `UNREADABLE` when it comes out of
        a record that was damaged.
        """
        if not changes:
            return self
        known = {f.name for f in fields(self)} & changes.keys()
        values = {name: changes[name] for name in known}
        if "max_retries" in values:
            values["max_retries"] = int(values["max_retries"])
        return replace(self, **values)  # type: ignore[arg-type]  # the keys were just checked against the fields
