"""A TTL cache with single flight: concurrent requests for the same key share one read."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from shared.errors import StoreUnavailable

T = TypeVar("T")
FRESH = 2.0
QUICK = 0.5
READS = 20
"""Bound on reads per second when hundreds of tabs show different pages."""
OUTAGE = 1.0
"""Seconds without a new attempt after Redis did not answer; else every thread would wait for it in turn."""
UNWANTED = 60.0
"""Seconds without a request after which an entry is dropped."""


@dataclass(slots=True)
class _Answer:
    at: float
    future: Future[Any] = field(default_factory=Future)

    def age(self) -> float:
        return time.monotonic() - self.at

    def failed(self) -> bool:
        return self.future.done() and self.future.exception() is not None


class TTLCache:
    """Keeps answers for two seconds, so that a hundred tabs on one page load Redis as much as one.

    With very many different pages open, each answer is kept for longer, so that the total load stays bounded: ten
    seconds with two hundred. A request for an answer that is being read waits for that read.
    """

    MOST = 512

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.answers: OrderedDict[Hashable, _Answer] = OrderedDict()

    def get(self, question: Hashable, ask: Callable[[], T], fresh: float = FRESH) -> T:
        """Returns the answer, at most a few seconds old.

        An error of `ask` is raised in all waiting threads, and kept only if Redis did not answer.
        """
        with self.lock:
            known = self.answers.get(question)
            mine = known is None or known.age() > (OUTAGE if known.failed() else self._life(fresh))
            answer = self._place(question) if mine or known is None else known
        if mine:
            self._fill(question, answer, ask)
        found: T = answer.future.result()
        return found

    def clear(self) -> None:
        with self.lock:
            self.answers.clear()

    def _life(self, fresh: float) -> float:
        """Returns for how many seconds an answer is valid; it grows with the number of recently requested answers."""
        while self.answers and next(iter(self.answers.values())).age() > UNWANTED:
            self.answers.popitem(last=False)
        return max(fresh, len(self.answers) / READS)

    def _place(self, question: Hashable) -> _Answer:
        answer = self.answers[question] = _Answer(time.monotonic())
        self.answers.move_to_end(question)
        while len(self.answers) > self.MOST:
            self.answers.popitem(last=False)
        return answer

    def _fill(self, question: Hashable, answer: _Answer, ask: Callable[[], T]) -> None:
        try:
            answer.future.set_result(ask())
        except BaseException as error:
            with self.lock:
                answer.at = time.monotonic()
                if not isinstance(error, StoreUnavailable) and self.answers.get(question) is answer:
                    del self.answers[question]
            answer.future.set_exception(error)
