"""Checks whether a submission would be accepted now, by a write under the conditions of a submission."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from firmq.shared.errors import StoreRefused, StoreUnavailable
from firmq.shared.redis.client import translated
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.queues import submission_check
from firmq.shared.submission.type_cache import NO_TYPES, TypeCache

FRESH = 1.0
"""Seconds for which a result is reused: several probes may arrive each second."""


class Readiness:
    """Finds obstacles to submissions; queries Redis at most once a second."""

    def __init__(self, scripts: Scripts, type_cache: TypeCache, clock: Callable[[], float] = time.monotonic) -> None:
        self.scripts = scripts
        self.type_cache = type_cache
        self.clock = clock
        self.lock = threading.Lock()
        self.outcome: StoreUnavailable | None = None
        self.asked_at = -FRESH

    def obstacles(self) -> list[str]:
        """Returns the reasons for which a submission would be refused now; empty when it would be accepted.

        Raises StoreUnavailable when Redis does not answer.
        """
        with self.lock:
            if self.clock() - self.asked_at >= FRESH:
                self.outcome = self._ask()
                self.asked_at = self.clock()
            outcome = self.outcome
        if isinstance(outcome, StoreRefused):
            return [str(outcome)]
        if outcome:
            raise outcome
        return [] if self.type_cache.names() else [NO_TYPES]

    def _ask(self) -> StoreUnavailable | None:
        try:
            with translated():
                submission_check(self.scripts)
        except StoreUnavailable as error:
            return error
        return None
