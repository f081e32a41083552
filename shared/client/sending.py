"""What a batch does on its way, through a gateway or without one: a list is sent at once, all else by iterating."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from shared.client.answers import BatchItem


class Sending(ABC):
    """Iterate over it to get what became of each task, in their order."""

    batch_id: str | None = None
    """Known from the first answer on."""
    _answers: list[BatchItem] | None = None
    _waits = False

    def send(self, tasks: Iterable[Mapping[str, Any]]) -> Self:
        """Sends a list at once and keeps the answers; anything else waits until it is iterated over."""
        if isinstance(tasks, Sequence):
            self._answers = list(self.results())
        else:
            self._waits = True
        return self

    def __iter__(self) -> Iterator[BatchItem]:
        self._waits = False
        yield from self.results() if self._answers is None else self._answers

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
        """Sends the tasks, and gives what became of each."""

    def drain(self) -> Self:
        """Sends all of it, for those who want the counts only."""
        for _ in self:
            pass
        return self
