"""Refuses requests immediately while Redis hangs.

A call to a server that hangs takes its whole time-out. With every thread in such a call, further requests would wait
for a thread and then for Redis. So after one slow failure, requests are refused immediately for a moment, except for
one at a time that probes whether Redis answers again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from firmq.shared.errors import HistoryUnavailable, StoreRefused, StoreUnavailable

SLOW = 0.3
"""Seconds from which a failure opens the breaker; a refused connection fails at once and blocks no thread."""
PAUSE = 0.3
"""Seconds for which requests are refused after a slow failure; the maximum delay in noticing recovery."""
LOOK = 2.0
"""Seconds that a probe may take before another request probes too."""


class CircuitBreaker:
    """Closed: every request passes. Open: requests are refused for PAUSE; then one passes and decides."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.lock = threading.Lock()
        self.reason: str | None = None
        self.refuse_until = 0.0

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """Wraps the work of a request. Raises StoreUnavailable without doing the work while open."""
        if self.reason is not None:
            self._look_or_refuse()
        started = self.clock()
        try:
            yield
        except StoreUnavailable as error:
            if not isinstance(error, StoreRefused | HistoryUnavailable) and self.clock() - started > SLOW:
                self._open(str(error))
            raise
        if self.reason is not None:
            self.reason = None

    def _look_or_refuse(self) -> None:
        with self.lock:
            reason, now = self.reason, self.clock()
            if reason is not None and now < self.refuse_until:
                raise StoreUnavailable(reason)
            self.refuse_until = now + LOOK

    def _open(self, reason: str) -> None:
        with self.lock:
            self.reason = reason
            self.refuse_until = self.clock() + PAUSE
