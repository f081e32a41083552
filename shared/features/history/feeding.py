"""Writes ended tasks to the history: each end once, and counts it in the statistics only if its row is new.

Rows and statistics change in one transaction, and transactions follow one another: so whatever is killed in between,
an end that is sent again adds nothing. This is why the database needs no position of the feed, which a Redis that was
restored from a backup would contradict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import Table, bindparam, delete, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DataError, IntegrityError

from firmq.shared.domain import histogram
from firmq.shared.domain.clock import to_us
from firmq.shared.domain.task import TaskState
from firmq.shared.features.history.database import Database
from firmq.shared.features.history.rows import COUNTS, Key, Totals, causes, row_of, statistics, tags_of
from firmq.shared.features.history.tables import CAUSES, SCHEMA, STATISTICS, TAGS, TASKS, create

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from firmq.shared.features.history.unarchived import EndedTask

KEPT = {60: timedelta(days=2), 3600: timedelta(days=60), 86400: timedelta(days=730)}
"""How long statistics are kept, by the length of their periods."""


class Feeder:
    """The writing side of the history."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.ready = False
        self.unreadable = 0

    def store(self, ends: Sequence[EndedTask]) -> int:
        """Stores ends; returns how many were new. Raises HistoryUnavailable.

        Ends that cannot be read, or that the database refuses by themselves, are left out and counted.
        """
        self._prepare()
        try:
            return self.database.run(lambda connection: self._store(connection, ends))
        except (DataError, IntegrityError, UnicodeError):
            if len(ends) == 1:
                self.unreadable += 1
                return 0
        return sum(self.store([end]) for end in ends)

    def prune(self, retention: Mapping[TaskState, timedelta], now_us: int, limit: int) -> int:
        """Removes tasks past their retention, at most `limit` of each state; returns their number."""
        self._prepare()
        return self.database.run(lambda connection: _prune(connection, retention, now_us, limit))

    def _prepare(self) -> None:
        if not self.ready:
            self.database.run(create)
            self.ready = True

    def _store(self, connection: Connection, ends: Sequence[EndedTask]) -> int:
        # The row lock serializes transactions, even of a housekeeper that was frozen.
        connection.execute(update(SCHEMA).values(version=SCHEMA.c.version))
        made = [(row, end) for end in ends if (row := row_of(end))]
        unreadable = len(ends) - len(made)
        unique = {(row["task_id"], row["ended_at"]): (row, end) for row, end in made}
        statement = self._insert(TASKS).on_conflict_do_nothing().returning(TASKS.c.task_id, TASKS.c.ended_at)
        new = connection.execute(statement, [row for row, _ in unique.values()]) if unique else ()
        stored = [unique[task_id, ended_at] for task_id, ended_at in new]
        if tags := [tag for row, end in stored for tag in tags_of(row, end)]:
            connection.execute(self._insert(TAGS).on_conflict_do_nothing(), tags)
        if stored:
            self._add_statistics(connection, statistics(stored))
            failures = causes(row for row, _ in stored)
            self._add(connection, CAUSES, [(*key, error, failed) for key, (error, failed) in failures.items()])
        self.unreadable += unreadable
        return len(stored)

    def _insert(self, table: Table) -> Any:
        return (postgresql if self.database.dialect == "postgresql" else sqlite).insert(table)

    def _add_statistics(self, connection: Connection, added: Mapping[Key, Totals]) -> None:
        columns = STATISTICS.c
        key = columns.seconds, columns.at, columns.type, columns.queue, columns.version
        for row in connection.execute(select(*key, columns.wait, columns.run).where(tuple_(*key).in_(list(added)))):
            *name, wait, run = row
            added[tuple(name)].wait += histogram.decode(wait)
            added[tuple(name)].run += histogram.decode(run)
        rows = [
            (*key, *(each.counts[name] for name in COUNTS), histogram.encode(each.wait), histogram.encode(each.run))
            for key, each in added.items()
        ]
        self._add(connection, STATISTICS, rows)

    def _add(self, connection: Connection, table: Table, rows: Sequence[Sequence[Any]]) -> None:
        """Adds rows. Counts are added to an existing row's; the other values replace its own."""
        statement, keys = self._insert(table), list(table.primary_key)
        new = {column: statement.excluded[column.name] for column in table.c if column not in keys}
        changes = {column.name: column + value if column.name in COUNTS else value for column, value in new.items()}
        values = [dict(zip(table.c.keys(), row, strict=True)) for row in rows]
        if values:
            connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=changes), values)


def _prune(connection: Connection, retention: Mapping[TaskState, timedelta], now_us: int, limit: int) -> int:
    removed = sum(_prune_state(connection, state, now_us - to_us(age), limit) for state, age in retention.items())
    for seconds, age in KEPT.items():
        for table in (STATISTICS, CAUSES):
            old = table.c.seconds == seconds, table.c.at < (now_us - to_us(age)) // 1_000_000
            connection.execute(delete(table).where(*old))
    return removed


def _prune_state(connection: Connection, state: TaskState, until: int, limit: int) -> int:
    oldest = (
        select(TASKS.c.task_id, TASKS.c.ended_at)
        .where(TASKS.c.state == state, TASKS.c.ended_at < until)
        .order_by(TASKS.c.ended_at)
        .limit(limit)
    )
    found = [{"id_": task_id, "at_": ended_at} for task_id, ended_at in connection.execute(oldest)]
    for table in (TAGS, TASKS) if found else ():
        this = table.c.task_id == bindparam("id_"), table.c.ended_at == bindparam("at_")
        connection.execute(delete(table).where(*this), found)
    return len(found)
