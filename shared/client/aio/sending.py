"""Base class for sending a batch, through a gateway or in local mode."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import Self

from firmq.shared.client.aio.concurrency import Tasks, each_of
from firmq.shared.client.answers import BatchItem


class Sending(ABC):
    """A batch to be sent; iterating over it yields the outcome of each task, in order."""

    batch_id: str | None = None
    """Set from the first response on."""
    _answers: list[BatchItem] | None = None
    _waits = False

    async def send(self, tasks: Tasks) -> Self:
        """Sends a sequence at once and keeps the outcomes; any other iterable is sent when iterated over."""
        if isinstance(tasks, Sequence):
            self._answers = [item async for item in self.results()]
        else:
            self._waits = True
        return self

    async def __aiter__(self) -> AsyncIterator[BatchItem]:
        self._waits = False
        async for item in self.results() if self._answers is None else each_of(self._answers):
            yield item

    def __del__(self) -> None:
        if self._waits:
            warnings.warn(
                "a batch was never sent: iterate over it or call drain(); a list is sent at once",
                RuntimeWarning,
                stacklevel=2,
                source=self,
            )

    @abstractmethod
    def results(self) -> AsyncIterator[BatchItem]:
        """Sends the tasks and yields the outcome of each."""

    async def drain(self) -> Self:
        """Sends all tasks and discards the outcomes, for callers that need only the counts."""
        async for _ in self:
            pass
        return self
