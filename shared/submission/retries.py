"""Repeats calls that may succeed later, and turns failures into the exceptions of the client."""

from __future__ import annotations

import random
from collections.abc import Callable

from firmq.shared.errors import StoreMisfit
from firmq.shared.redis.connections import anything_sent
from firmq.shared.redis.errors import translation
from firmq.shared.submission import refusals
from firmq.shared.submission.problems import Problem, problem
from firmq.shared.submission.refusals import Refusal

_STORES = (refusals.STORE, refusals.STORE_REFUSED, refusals.PAYLOAD_STORE)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class Retries:
    """The time limit for retries of one call, and the pauses between them."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.until = clock() + seconds
        self.pause = _FIRST_PAUSE

    def pause_after(self, error: Exception) -> float:
        """Returns the seconds until the next try. Raises Problem for a final refusal, and unknown errors unchanged."""
        refusal = _refusal_of(error)
        if refusal is None:
            raise error
        seconds = self._pause(refusal) * (1 + random.random() / 4)
        lasting = isinstance(translation(error) or error, StoreMisfit) or not _may_pass(refusal)
        if lasting or self.clock() + seconds > self.until:
            raise problem_of(refusal) from error
        return seconds

    def _pause(self, refusal: Refusal) -> float:
        if "Retry-After" in refusal.headers and refusal.kind not in _STORES:
            return float(refusal.headers["Retry-After"])
        pause, self.pause = self.pause, min(2 * self.pause, _LONGEST_PAUSE)
        return pause


def problem_of(refusal: Refusal) -> Problem:
    """Returns the exception for a refusal, which has its texts."""
    if refusal.kind is refusals.STORE:
        refusal = refusals.unfinished(refusal, anything_sent())
    return problem(refusal.kind.status, refusal.problem)


def problem_for(error: Exception) -> Problem | None:
    """Returns the exception of the client for an error of a submission; None for an unknown error."""
    refusal = _refusal_of(error)
    return problem_of(refusal) if refusal else None


def _refusal_of(error: Exception) -> Refusal | None:
    failure = translation(error) or error
    return failure if isinstance(failure, Refusal) else refusals.refusal_of(failure)


def _may_pass(refusal: Refusal) -> bool:
    return refusal.kind.status in (429, 503) or refusal.kind is refusals.IN_PROGRESS
