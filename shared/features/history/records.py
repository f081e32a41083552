"""Reads tasks from Redis, and from the history if Redis no longer has them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from firmq.shared.domain.task import TaskDetail, TaskState
from firmq.shared.errors import HistoryUnavailable, TaskNotFound, needs
from firmq.shared.features.history.settings import HistorySettings
from firmq.shared.redis.client import translated
from firmq.shared.stores.tasks import Filter, Page, Reading, Records

if TYPE_CHECKING:
    from firmq.shared.config.settings import Settings
    from firmq.shared.features.history.reading import History

ARCHIVED = "h"
"""The prefix of cursors of the history."""
LATEST = 10**17
"""A time after every end, in microseconds."""


class AllRecords(Records):
    """Records whose single tasks, and lists of a final state, continue in the history."""

    def __init__(self, records: Records, history: History) -> None:
        super().__init__(records.scripts, records.queues, records.payloads)
        self.history = history

    def record(self, task_id: str) -> TaskDetail:
        """Returns everything on record about a task. Raises TaskNotFound, CorruptRecord or HistoryUnavailable."""
        try:
            return super().record(task_id)
        except TaskNotFound:
            return self.history.get(task_id)

    def state(self, task_id: str) -> TaskState:
        """Returns the state. Raises TaskNotFound or HistoryUnavailable."""
        try:
            return super().state(task_id)
        except TaskNotFound:
            return self.history.get(task_id).summary.state

    def read_many(self, ids: Sequence[str]) -> dict[str, Reading]:
        """Returns tasks with everything on record. Raises HistoryUnavailable."""
        found = super().read_many(ids)
        for each in ids:
            if each not in found:
                with suppress(TaskNotFound):
                    found[each] = Reading(detail=self.history.get(each), position=None, cause=None, size=0)
        return found

    def page(self, wanted: Filter, *, limit: int, cursor: str | None = None) -> Page:
        """Returns one page, newest first: the tasks in Redis, then those that only the history has.

        Raises ValueError for an invalid cursor, and HistoryUnavailable for a page that is in the history.
        """
        not_there = wanted.deleted or wanted.bulk
        is_continued = wanted.state is not None and wanted.state.ended and not not_there
        if cursor and cursor.startswith(ARCHIVED):
            if not is_continued:
                raise ValueError("not a cursor of this list")
            return self._archived_page(wanted, limit, cursor)
        page = super().page(wanted, limit=limit, cursor=cursor)
        if page.next_cursor or not is_continued:
            return page
        return self._continued(page, wanted, limit)

    def kept(self, task_ids: Collection[str]) -> set[str]:
        """Returns the given tasks that the history has. Raises HistoryUnavailable."""
        return self.history.known(task_ids)

    def _continued(self, page: Page, wanted: Filter, limit: int) -> Page:
        """Returns the last page of Redis with tasks that ended before the oldest one there."""
        with translated():
            first = self.redis.zrange(self.keys.ended(wanted.state or ""), 0, 0, withscores=True)
        cursor = f"{ARCHIVED}{int(first[0][1]) if first else LATEST}_"
        rest = Page(items=(), next_cursor=cursor)
        if len(page.items) < limit:
            with suppress(HistoryUnavailable):
                rest = self._archived_page(wanted, limit - len(page.items), cursor)
        positions = page.positions + rest.positions
        return Page(items=page.items + rest.items, next_cursor=rest.next_cursor, positions=positions)

    def _archived_page(self, wanted: Filter, limit: int, cursor: str) -> Page:
        now_us = self.scripts.now_us() if wanted.older_than or wanted.newer_than else 0
        return self.history.page(wanted, limit=limit, cursor=cursor, now_us=now_us)


def with_history(records: Records, settings: Settings) -> Records:
    """Returns these records with the history, if these settings name one. Nothing is read yet."""
    url = HistorySettings.of(settings).history_url
    if not url:
        return records
    with needs("HISTORY_URL", extra="history"):  # imported here, as SQLAlchemy is slow to import
        from firmq.shared.features.history.database import Database
        from firmq.shared.features.history.reading import TIMEOUT, History
    return AllRecords(records, History(Database(url, TIMEOUT)))


def history_of(records: Records) -> History | None:
    """Returns the history that continues records; None where there is none."""
    return records.history if isinstance(records, AllRecords) else None
