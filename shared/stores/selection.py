"""Iterates over the tasks of a filter or of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import BoundedSemaphore

from firmq.shared.domain.task import TaskSummary
from firmq.shared.errors import TooManyAtOnce
from firmq.shared.stores.batches import Batches
from firmq.shared.stores.tasks import Filter, Records

CHUNK = 500
PAGES = 100
"""Pages that are read at most: a filter that few tasks match ends there."""


@dataclass(frozen=True, slots=True)
class Source:
    """Which tasks: the matches of a filter, or a batch's tasks in the state that the filter names."""

    wanted: Filter = field(default_factory=Filter)
    batch_id: str | None = None


class Room:
    """Bounds how many readings of many tasks are in progress: each holds megabytes."""

    def __init__(self, most: int, what: str) -> None:
        self.refusal = f"{most} {what} are being read, the maximum: try again later"
        self.places = BoundedSemaphore(most)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Raises TooManyAtOnce."""
        if not self.places.acquire(blocking=False):
            raise TooManyAtOnce(self.refusal)
        try:
            yield
        finally:
            self.places.release()


class Selection:
    """The tasks of a source that Redis has: of a filter the newest first, of a batch in their order."""

    def __init__(self, records: Records, batches: Batches, source: Source) -> None:
        self.records = records
        self.batches = batches
        self.source = source
        self.is_complete = False
        """Whether all tasks have been examined."""

    def __iter__(self) -> Iterator[Sequence[TaskSummary]]:
        """Yields tasks in chunks. Raises BatchNotFound."""
        chunks = self._of_filter() if self.source.batch_id is None else self._of_batch(self.source.batch_id)
        for chunk in chunks:
            if chunk:
                yield chunk

    def _of_filter(self) -> Iterator[Sequence[TaskSummary]]:
        cursor = None
        for _ in range(PAGES):
            page = self.records.page(self.source.wanted, limit=CHUNK, cursor=cursor)
            yield page.items
            if (cursor := page.next_cursor) is None:
                self.is_complete = True
                return

    def _of_batch(self, batch_id: str) -> Iterator[Sequence[TaskSummary]]:
        self.batches.get(batch_id)
        after = -1
        for _ in range(PAGES):
            items, behind = self.batches.items(batch_id, CHUNK, after, self.source.wanted.state)
            yield [each.summary for each in items if each.summary]
            if behind is None:
                self.is_complete = True
                return
            after = behind
