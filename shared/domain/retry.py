"""When a failed task is retried: the policy decides, the worker acts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from random import Random
from typing import TypeAlias

from firmq.shared.domain.failure_fingerprint import lineage

_MOST = 1e9
"""The upper bound of seconds and of counts: three decades."""
MOST_PAUSES = 100

Changes: TypeAlias = Mapping[str, float | Sequence[float]]
"""Fields of a policy by name, as in JSON."""
Strategy: TypeAlias = Callable[[BaseException, int], float | timedelta | None]
"""Returns the seconds to wait after an error and its number of failures (from 1); None for the dead letters."""
Rule: TypeAlias = Sequence[float] | Strategy | None
"""A handler's rule for its retries: a list of pauses, a function, or None for no retry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Exponential backoff: 5, 10 and 20 seconds with the defaults, then the dead letters.

    `max_retries` does not count the first attempt, so a task runs `max_retries + 1` times at most. Delays are in
    seconds. `jitter` spreads each delay over [delay * (1 - jitter), delay * (1 + jitter)]; off by default, so that
    the documented delays hold to the letter.

    `pauses`, if given, replace the backoff, and `max_retries` is their number. Where it was changed later, the last
    pause is repeated.
    """

    max_retries: int = 3
    initial_delay: float = 5.0
    multiplier: float = 2.0
    max_delay: float = 3600.0
    jitter: float = 0.0
    pauses: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError or TypeError for values out of range, which a corrupt record may hold."""
        if len(self.pauses) > MOST_PAUSES:
            raise ValueError(f"pauses has {len(self.pauses)} entries: at most {MOST_PAUSES} are allowed")
        numbers = [(each.name, getattr(self, each.name)) for each in fields(self) if each.name != "pauses"]
        for name, value in (*numbers, *(("a pause", pause) for pause in self.pauses)):
            if not _is_number(value) or not 0 <= value <= _MOST:  # also false for nan
                raise ValueError(f"{name} is {str(value)[:40]}: it must be from 0 to {_MOST:g}")

    def delay(self, failures: int, random: Random | None = None) -> timedelta | None:
        """Returns how long to wait after the `failures`-th failure (counted from 1); None after the last retry."""
        if failures > self.max_retries:
            return None
        seconds = self._pause(failures) if self.pauses else self._backoff(failures)
        if self.jitter and random is not None:
            seconds *= 1 + self.jitter * random.uniform(-1, 1)
        return timedelta(seconds=seconds)

    def _pause(self, failures: int) -> float:
        return self.pauses[min(failures, len(self.pauses)) - 1]

    def _backoff(self, failures: int) -> float:
        # A huge exponent raises OverflowError in Python; the cap is reached long before.
        try:
            seconds = self.initial_delay * self.multiplier ** (failures - 1)
        except OverflowError:
            seconds = self.max_delay
        return min(seconds, self.max_delay)

    def override(self, changes: Changes | None) -> RetryPolicy:
        """Returns the same policy with some fields changed by name; unknown names are ignored.

        The last override wins: pauses replace the backoff, and a delay of the backoff replaces pauses.

        Ignoring unknown names lets an older worker run the tasks of a newer gateway. Raises one of `UNREADABLE` for the
        values of a corrupt record.
        """
        if not changes:
            return self
        known = {f.name for f in fields(self)} & changes.keys()
        values: dict[str, object] = {name: changes[name] for name in known}
        if values.get("pauses"):
            values["pauses"] = pauses = tuple(changes["pauses"])  # type: ignore[arg-type]  # no list: a TypeError
            values.setdefault("max_retries", len(pauses))
        elif _BACKOFF & known:
            values["pauses"] = ()
        if "max_retries" in values:
            values["max_retries"] = int(values["max_retries"])  # type: ignore[call-overload]  # no number: a TypeError
        return replace(self, **values)  # type: ignore[arg-type]  # the keys were just checked against the fields


def _is_number(value: object) -> bool:
    """Returns whether JSON has the value as a number, unlike a Decimal."""
    return isinstance(value, int | float) and not isinstance(value, bool)


_BACKOFF = {"initial_delay", "multiplier", "max_delay"}


@dataclass(frozen=True, slots=True)
class RetryRules:
    """A handler's rules for its retries by the class of the error. The most specific class wins."""

    rules: Mapping[type[BaseException], Rule]

    def gives_up(self, error: BaseException) -> bool:
        """Returns whether an error like this is not retried."""
        return self._rule(error) is None

    def changes(self, error: BaseException) -> Changes:
        """Returns the changes of the policy by the rule for this error."""
        rule = self._rule(error)
        return {"pauses": rule} if rule and not callable(rule) else {}

    def pause(self, error: BaseException, failures: int) -> timedelta | None:
        """Returns the pause that a function chose. Raises its errors, and ValueError for a pause out of range."""
        rule = self._rule(error)
        chosen = rule(error, failures) if callable(rule) else None
        if chosen is None or isinstance(chosen, timedelta):
            return chosen
        if not _is_number(chosen) or not 0 <= chosen <= _MOST:
            raise ValueError(f"it returned {str(chosen)[:40]}: return seconds from 0 to {_MOST:g}, or None to give up")
        return timedelta(seconds=chosen)

    def names(self, error: BaseException) -> bool:
        """Returns whether there is a rule for an error like this."""
        return any(each is named for each in lineage(error) for named in self.rules)

    def chooses(self, error: BaseException) -> bool:
        """Returns whether a function decides."""
        return callable(self._rule(error))

    def _rule(self, error: BaseException) -> Rule:
        return next((rule for each in lineage(error) for named, rule in self.rules.items() if each is named), ())


def read_rules(given: object) -> tuple[Changes, RetryRules]:
    """Returns the changes of the policy by a handler's `retry` for every error, and its rules by error.

    Raises ValueError for anything but a list of pauses, a function, or a mapping of error classes to these or None.
    """
    if isinstance(given, Mapping):
        for error, rule in given.items():
            if not (isinstance(error, type) and issubclass(error, BaseException)):
                raise ValueError(f"{error!r} is not an exception class")
            if rule is not None:
                _check(rule)
        return {}, RetryRules(dict(given))
    _check(given)
    if callable(given):
        return {}, RetryRules({BaseException: given})
    return {"pauses": list(given)}, RetryRules({})  # type: ignore[call-overload]  # it was checked to be a list


def _check(rule: object) -> None:
    if callable(rule) and not isinstance(rule, type):
        try:
            inspect.signature(rule).bind(None, 1)
        except TypeError as error:
            raise ValueError(f"the function must take an error and the number of failures: {error}") from None
        if not inspect.iscoroutinefunction(rule):
            return
    if not isinstance(rule, list | tuple) or not rule:
        raise ValueError(
            f"{rule!r} is neither a list of pauses in seconds, such as [15, 60, 300], nor a plain function"
        )
    try:
        RetryPolicy(pauses=tuple(rule))
    except TypeError as error:
        raise ValueError(f"{rule!r} must hold only numbers of seconds") from error
