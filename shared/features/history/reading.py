"""Reads ended tasks from the history, in the form in which Redis had them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Select, Table, and_, select, tuple_
from sqlalchemy.exc import DataError

from firmq.shared.domain import search, task_data
from firmq.shared.domain.clock import instant_us
from firmq.shared.domain.decode import UNREADABLE
from firmq.shared.domain.task import TaskDetail, TaskState, TaskSummary
from firmq.shared.errors import CorruptRecord, TaskNotFound
from firmq.shared.features.history.database import Database
from firmq.shared.features.history.tables import TAGS, TASKS
from firmq.shared.stores.record_fields import SUMMARY_FIELDS, read_detail, read_summary
from firmq.shared.stores.tasks import Filter, Page

if TYPE_CHECKING:
    from sqlalchemy import Connection

T = TypeVar("T")
_Found = tuple[tuple[int, str] | None, list[tuple[int, TaskSummary]]]

TIMEOUT = 2.0
"""Seconds that a page or a request waits for the database."""
LOOK_AT = 2000
"""Tasks that one page may examine while it filters by fields without an index."""
LOOK_AT_RECORDS = 200
"""The same where it filters by the content of the records, each of which may have a megabyte."""
AT_ONCE = 4
"""Records that are held in memory at a time."""
_BYTES = ("utf-8", "surrogateescape")
"""How texts become bytes, whose `lower` changes ASCII letters only, like Redis'."""
_CURSOR = re.compile(r"h(\d{1,18})_([A-Za-z0-9_-]{0,128})")
_NAMES = (
    *(TASKS.c.ended_at, TASKS.c.task_id, TASKS.c.state, TASKS.c.type, TASKS.c.queue),
    *(TASKS.c.version, TASKS.c.worker, TASKS.c.error, TASKS.c.cause, TASKS.c.created_at),
)


class History:
    """The reading side of the history. Every method raises HistoryUnavailable."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def get(self, task_id: str) -> TaskDetail:
        """Returns a task as it was when it last ended. Raises TaskNotFound."""
        query = select(TASKS).where(TASKS.c.task_id == task_id).order_by(TASKS.c.ended_at.desc()).limit(1)
        row = self.read(lambda connection: connection.execute(query).mappings().first())
        if row is None:
            raise TaskNotFound(id=task_id)
        detail = read_detail(task_id, _fields(row["record"]), (row["result"] or "").encode())
        return replace(detail, summary=replace(detail.summary, archived=True))

    def known(self, task_ids: Collection[str]) -> set[str]:
        """Returns the given tasks that the history has."""
        query = select(TASKS.c.task_id).where(TASKS.c.task_id.in_(task_ids)).distinct()
        return self.read(lambda connection: set(connection.execute(query).scalars())) or set()

    def page(self, wanted: Filter, *, limit: int, cursor: str, now_us: int = 0) -> Page:
        """Returns one page of tasks of a final state, the last ends first. Raises ValueError for an invalid cursor.

        `now_us` is the time from which ages count.
        """
        before = read_cursor(cursor)
        by_column = wanted.queue or wanted.tag or wanted.cause or wanted.content(now_us)
        examined = LOOK_AT_RECORDS if _by_record(wanted) else LOOK_AT if by_column else limit + 1
        examine = partial(_page, wanted=wanted, before=before, limit=limit, examined=examined, now_us=now_us)
        seen, rows = self.read(examine) or (None, [])
        next_cursor = cursor_of(*seen) if seen else None
        positions = tuple(cursor_of(ended_at, summary.id) for ended_at, summary in rows)
        return Page(items=tuple(summary for _, summary in rows), next_cursor=next_cursor, positions=positions)

    def slowest(self, task_type: str, limit: int) -> list[TaskSummary]:
        """Returns the tasks of a type that ran longest, of the last `LOOK_AT` that completed."""
        found = self.read(lambda connection: _summaries(connection, _slowest(task_type, limit)))
        return [summary for _, summary in found or ()]

    def read(self, work: Callable[[Connection], T]) -> T | None:
        """Returns the result of `work`; None when it looks for values that no column can hold."""
        try:
            return self.database.run(work)
        except (DataError, UnicodeError):
            return None


def cursor_of(ended_at: int, task_id: str) -> str:
    """Returns the cursor of the tasks that ended before this one."""
    return f"h{ended_at}_{task_id}"


def read_cursor(cursor: str) -> tuple[int, str]:
    """Returns the end and id of a cursor. Raises ValueError for an invalid one."""
    found = _CURSOR.fullmatch(cursor)
    if not found:
        raise ValueError("not a cursor of this list")
    return int(found[1]), found[2]


def _slowest(task_type: str, limit: int) -> Select[Any]:
    completed = select(TASKS.c.task_id, TASKS.c.ended_at, TASKS.c.run_us)
    completed = completed.where(TASKS.c.type == task_type, TASKS.c.state == TaskState.COMPLETED)
    last = completed.order_by(TASKS.c.ended_at.desc()).limit(LOOK_AT).subquery()
    longest = select(last).where(last.c.run_us > 0).order_by(last.c.run_us.desc()).limit(limit).subquery()
    same = and_(longest.c.task_id == TASKS.c.task_id, longest.c.ended_at == TASKS.c.ended_at)
    return _shown().join(longest, same).order_by(TASKS.c.run_us.desc())


def _page(
    connection: Connection, wanted: Filter, before: tuple[int, str], limit: int, examined: int, now_us: int
) -> _Found:
    """Returns the last task that was examined (None: there are no more), and the rows that match."""
    rows = connection.execute(_indexed(wanted, before, examined).execution_options(yield_per=AT_ONCE))
    keys = [(row.ended_at, row.task_id, _matches(row, wanted, now_us)) for row in rows]
    matching = [key for key in keys if key[2]]
    shown = [(task_id, ended_at) for ended_at, task_id, _ in matching[:limit]]
    is_end = len(keys) < examined and len(matching) <= limit
    last = matching[limit - 1] if len(matching) > limit else keys[-1] if keys else None
    seen = last[:2] if last and not is_end else None
    if not shown:
        return seen, []
    query = _shown().where(tuple_(TASKS.c.task_id, TASKS.c.ended_at).in_(shown))
    return seen, _summaries(connection, query.order_by(TASKS.c.ended_at.desc(), TASKS.c.task_id.desc()))


def _shown() -> Select[Any]:
    return select(TASKS.c.task_id, TASKS.c.ended_at, TASKS.c.record)


def _summaries(connection: Connection, query: Select[Any]) -> list[tuple[int, TaskSummary]]:
    """Returns tasks with their ends, of few records at a time, as each may have megabytes."""
    rows = connection.execute(query.execution_options(yield_per=AT_ONCE)).mappings()
    return [(row["ended_at"], _summary(row)) for row in rows]


def _matches(row: Any, wanted: Filter, now_us: int) -> bool:
    """Returns whether a row has all that is wanted, as `_filter.lua` compares it."""
    pairs = (
        (wanted.queue, row.queue),
        (wanted.type, row.type),
        (wanted.state, row.state),
        (wanted.cause, row.cause),
        (wanted.worker, row.worker),
        (wanted.app_version, row.version),
    )
    if any(given and given != found for given, found in pairs):
        return False
    content, created = wanted.content(now_us), row.created_at
    return (
        (not wanted.id or row.task_id.startswith(wanted.id) or row.task_id.endswith(wanted.id))
        and ("created_from" not in content or (created is not None and created >= content["created_from"]))
        and ("created_to" not in content or (created is not None and created <= content["created_to"]))
        and (not _by_record(wanted) or _record_matches(row, wanted))
    )


def _by_record(wanted: Filter) -> bool:
    scored = wanted.min_score is not None or wanted.max_score is not None
    return bool(wanted.data or wanted.error or wanted.submitted_by or scored)


def _record_matches(row: Any, wanted: Filter) -> bool:
    fields = _fields(row.record)
    summary = read_summary(row.task_id, [fields.get(name) for name in SUMMARY_FIELDS])
    error = f"{summary.error.type}: {summary.error.message}" if summary.error else ""
    if wanted.error and wanted.error.encode(*_BYTES).lower() not in error.encode(*_BYTES).lower():
        return False
    if wanted.submitted_by and wanted.submitted_by != summary.submitted_by:
        return False
    low, high = wanted.min_score or 0, inf if wanted.max_score is None else wanted.max_score
    if not low <= (summary.score or 0) <= high:
        return False
    return not wanted.data or has_data(summary.type, fields, wanted)


def has_data(task_type: str, fields: Mapping[str, bytes], wanted: Filter) -> bool:
    """Returns whether the data of a record has all values that are wanted; without data that is a payload."""
    try:
        stored = task_data.decode(task_type, fields["data"])
        data = search.load(stored) if isinstance(stored, bytes) else None
    except (CorruptRecord, *UNREADABLE):
        return False
    return all(each.matches(data) for each in wanted.data)


def _names(wanted: Filter) -> Sequence[Any]:
    return (*_NAMES, TASKS.c.record) if _by_record(wanted) else _NAMES


def _indexed(wanted: Filter, before: tuple[int, str], limit: int) -> Select[Any]:
    """Returns the names of tasks by the best index, newest first; the rest of the filter is not in it."""
    if not wanted.tag:
        query = _slice(select(*_names(wanted)), TASKS, wanted, before, limit).where(TASKS.c.state == wanted.state)
        return query.where(TASKS.c.type == wanted.type) if wanted.type else query
    # Limited before the join: PostgreSQL takes the two keys as independent, and would read both tables to their end.
    tagged = select(TAGS.c.task_id, TAGS.c.ended_at).where(TAGS.c.tag == wanted.tag)
    named = _slice(tagged, TAGS, wanted, before, limit).subquery()
    same = and_(named.c.task_id == TASKS.c.task_id, named.c.ended_at == TASKS.c.ended_at)
    return select(*_names(wanted)).join(named, same).order_by(named.c.ended_at.desc(), named.c.task_id.desc())


def _slice(query: Select[Any], table: Table, wanted: Filter, before: tuple[int, str], limit: int) -> Select[Any]:
    at, task_id = table.c.ended_at, table.c.task_id
    query = query.where(tuple_(at, task_id) < tuple_(*before))
    if wanted.since:
        query = query.where(at >= instant_us(wanted.since))
    if wanted.until:
        query = query.where(at <= instant_us(wanted.until))
    return query.order_by(at.desc(), task_id.desc()).limit(limit)


def _fields(record: str) -> dict[str, bytes]:
    return {name: str(value).encode(*_BYTES) for name, value in json.loads(record).items()}


def _summary(row: Any) -> TaskSummary:
    fields = _fields(row["record"])
    return replace(read_summary(row["task_id"], [fields.get(name) for name in SUMMARY_FIELDS]), archived=True)
