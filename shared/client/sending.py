# Generated from shared/client/aio/sending.py by `python -m tools.unasync`: change that file.
"""Base class for sending a batch, through a gateway or in local mode."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Self

from firmq.shared.client.answers import BatchItem
from firmq.shared.client.concurrency import Tasks, each_of


class Sending(ABC):
    """A batch to be sent; iterating over it yields the outcome of each task, in order."""

    batch_id: str | None = None
    """Set from the first response on."""
    _answers: list[BatchItem] | None = None
    _waits = False

    def send(self, tasks: Tasks) -> Self:
        """Sends a sequence at once and keeps the outcomes; any other iterable is sent when iterated over."""
        if isinstance(tasks, Sequence):
            self._answers = list(self.results())
        else:
            self._waits = True
        return self

    def __iter__(self) -> Iterator[BatchItem]:
        self._waits = False
        yield from self.results() if self._answers is None else each_of(self._answers)

    def __del__(self) -> None:
        if self._waits:
            warnings.warn(
                "a batch was never sent: iterate over it or call drain(); a list is sent at once",
                RuntimeWarning,
                stacklevel=2,
                source=self,
            )

    @abstractmethod
    def results(self) -> Iterator[BatchItem]:
        """Sends the tasks and yields the outcome of each."""

    def drain(self) -> Self:
        """Sends all tasks and discards the outcomes, for callers that need only the counts."""
        for _ in self:
            pass
        return self
