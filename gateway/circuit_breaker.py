"""Spares callers the wait for a Redis that hangs.

One call to a server that hangs takes its whole time-out. With every thread in such a call, the requests behind them
would wait for a thread first and for Redis next. So after one slow failure the following requests are refused at
once for a moment, except for one at a time that looks whether Redis is back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shared.errors import StoreRefused, StoreUnavailable

SLOW = 0.3
"""Seconds from which a failure is worth sparing others; a refused connection fails at once and harms nobody."""
PAUSE = 0.3
"""Seconds for which requests are refused after a slow failure: the most that recovery is noticed late."""
LOOK = 2.0
"""Seconds that the one who looks may take before another looks too."""


class CircuitBreaker:
    """Closed: everything passes. Open: everything is refused until a moment; then one passes, and decides."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.lock = threading.Lock()
        self.reason: str | None = None
        self.refuse_until = 0.0

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """Around the work of a request. Raises StoreUnavailable instead of letting it in while open."""
        if self.reason is not None:
            self._look_or_refuse()
        started = self.clock()
        try:
            yield
        except StoreUnavailable as error:
            if not isinstance(error, StoreRefused) and self.clock() - started > SLOW:
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
