"""Tasks wherever they are on record: in Redis, or in the history when Redis has forgotten them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from firmq.shared.domain.task import TaskDetail, TaskState
from firmq.shared.errors import HistoryUnavailable, TaskNotFound, needs
from firmq.shared.redis.client import translated
from firmq.shared.stores.tasks import Filter, Page, Reading, Records

if TYPE_CHECKING:
    from firmq.shared.config.settings import Settings
    from firmq.shared.history.reading import History

ARCHIVED = "h"
"""What cursors begin with that lead into the history."""
LATEST = 10**17
"""A time after every end, in microseconds."""


class AllRecords(Records):
    """Records whose single tasks, and lists of a final state, go on into the history."""

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
            if each not in found and (reading := self._archived(each)):
                found[each] = reading
        return found

    def page(self, wanted: Filter, *, limit: int, cursor: str | None = None) -> Page:
        """Returns one page, newest first: what Redis has, then what only the history has.

        Raises ValueError for an invalid cursor, and HistoryUnavailable for a page that is in the history.
        """
        not_there = wanted.deleted or wanted.bulk
        is_continued = wanted.state is not None and wanted.state.ended and not not_there
        if cursor and cursor.startswith(ARCHIVED):
            if not is_continued:
                raise ValueError("not a cursor of this list")
            return self._archived_page(wanted, limit, cursor.removeprefix(ARCHIVED))
        page = super().page(wanted, limit=limit, cursor=cursor)
        if page.next_cursor or not is_continued:
            return page
        return self._continued(page, wanted, limit)

    def _continued(self, page: Page, wanted: Filter, limit: int) -> Page:
        """Returns the last page of Redis with what ended before the oldest task there."""
        cursor = f"{self._oldest(wanted.state)}_"
        if len(page.items) >= limit:
            return replace(page, next_cursor=ARCHIVED + cursor)
        try:
            rest = self._archived_page(wanted, limit - len(page.items), cursor)
        except HistoryUnavailable:
            return replace(page, next_cursor=ARCHIVED + cursor)
        positions = page.positions + rest.positions
        return Page(items=page.items + rest.items, next_cursor=rest.next_cursor, positions=positions)

    def _archived_page(self, wanted: Filter, limit: int, cursor: str) -> Page:
        now_us = self.scripts.now_us() if wanted.older_than or wanted.newer_than else 0
        page = self.history.page(wanted, limit=limit, cursor=cursor, now_us=now_us)
        return Page(
            items=page.items,
            next_cursor=page.next_cursor and ARCHIVED + page.next_cursor,
            positions=tuple(ARCHIVED + each for each in page.positions),
        )

    def _oldest(self, state: TaskState | None) -> int:
        """Returns the end of the oldest task of this state in Redis."""
        with translated():
            first = self.redis.zrange(self.keys.ended(state or ""), 0, 0, withscores=True)
        return int(first[0][1]) if first else LATEST

    def _archived(self, task_id: str) -> Reading | None:
        try:
            detail = self.history.get(task_id)
        except TaskNotFound:
            return None
        return Reading(detail=detail, position=None, cause=None, size=0)


def open_records(records: Records, history: History | None) -> Records:
    """Returns these records with the history, if there is one."""
    return AllRecords(records, history) if history else records


def open_history(settings: Settings) -> History | None:
    """Returns the history of these settings; None where there is none. Nothing is read yet."""
    if not settings.history_url:
        return None
    with needs("HISTORY_URL", extra="history"):  # imported here, as SQLAlchemy is slow to import
        from firmq.shared.history.database import Database
        from firmq.shared.history.reading import TIMEOUT, History
    return History(Database(settings.history_url, TIMEOUT))
