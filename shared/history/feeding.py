"""Writes ended tasks to the history: each end once, and in the statistics exactly when its row was new.

Rows and statistics change in one transaction, and transactions follow one another: so whatever is killed in between,
an end that is sent again adds nothing. This is why the database needs no position of the feed, which a Redis that was
restored from a backup would contradict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import Table, bindparam, delete, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DataError, IntegrityError

from firmq.shared.domain.task import TaskState
from firmq.shared.history import histogram
from firmq.shared.history.database import Database
from firmq.shared.history.rows import Key, Row, Sums, causes, keep_first, row_of, statistics, tags_of
from firmq.shared.history.tables import CAUSES, SCHEMA, STATISTICS, TAGS, TASKS, migrate

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from firmq.shared.stores.unarchived import EndedTask

KEPT = {60: timedelta(days=2), 3600: timedelta(days=60), 86400: timedelta(days=730)}
"""How long statistics are kept, by the length of their periods."""
_COUNTS = ("completed", "failed", "cancelled", "expired", "retried", "crashed")


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
            return self.database.write(lambda connection: self._store(connection, ends))
        except (DataError, IntegrityError, UnicodeError):
            if len(ends) == 1:
                self.unreadable += 1
                return 0
        return sum(self.store([end]) for end in ends)

    def prune(self, retention: Mapping[TaskState, timedelta], now_us: int, limit: int) -> int:
        """Removes what is past its retention; returns how many tasks, at most `limit` of each state."""
        self._prepare()
        return self.database.write(lambda connection: _prune(connection, retention, now_us, limit))

    def _prepare(self) -> None:
        if not self.ready:
            self.database.write(migrate)
            self.ready = True

    def _store(self, connection: Connection, ends: Sequence[EndedTask]) -> int:
        # The row lock makes transactions follow one another, also those of a housekeeper that was frozen.
        connection.execute(update(SCHEMA).values(version=SCHEMA.c.version))
        made = [(row, end) for end in ends if (row := row_of(end))]
        unreadable = len(ends) - len(made)
        new = self._insert_new(connection, [row for row, _ in made])
        stored = [(row, end) for row, end in made if (row["task_id"], row["ended_at"]) in new]
        if tags := [tag for row, end in stored for tag in tags_of(row, end)]:
            connection.execute(self._insert(TAGS).on_conflict_do_nothing(), tags)
        if stored:
            self._add_statistics(connection, statistics(stored))
            self._add_causes(connection, causes(row for row, _ in stored))
        self.unreadable += unreadable
        return len(new)

    def _insert(self, table: Table) -> Any:
        return (postgresql if self.database.dialect == "postgresql" else sqlite).insert(table)

    def _insert_new(self, connection: Connection, rows: Sequence[Row]) -> set[tuple[str, int]]:
        if not rows:
            return set()
        statement = self._insert(TASKS).on_conflict_do_nothing().returning(TASKS.c.task_id, TASKS.c.ended_at)
        return {(task_id, ended_at) for task_id, ended_at in connection.execute(statement, keep_first(rows))}

    def _add_statistics(self, connection: Connection, added: Mapping[Key, Sums]) -> None:
        columns = STATISTICS.c
        key = tuple_(columns.seconds, columns.at, columns.type, columns.queue, columns.version)
        for row in connection.execute(select(STATISTICS).where(key.in_(list(added)))).mappings():
            sums = added[(row["seconds"], row["at"], row["type"], row["queue"], row["version"])]
            sums.counts.update({name: row[name] for name in _COUNTS})
            sums.wait += histogram.decode(row["wait"])
            sums.run += histogram.decode(row["run"])
        self._replace(connection, STATISTICS, [_statistics_row(key, sums) for key, sums in added.items()])

    def _add_causes(self, connection: Connection, added: Mapping[tuple[int, int, str, str], tuple[str, int]]) -> None:
        columns = CAUSES.c
        key = tuple_(columns.seconds, columns.at, columns.type, columns.cause)
        before = Counter[tuple[int, int, str, str]]()
        for row in connection.execute(select(CAUSES).where(key.in_(list(added)))).mappings():
            before[(row["seconds"], row["at"], row["type"], row["cause"])] = row["failed"]
        names = ("seconds", "at", "type", "cause")
        rows = [
            {**dict(zip(names, key, strict=True)), "error": error, "failed": failed + before[key]}
            for key, (error, failed) in added.items()
        ]
        self._replace(connection, CAUSES, rows)

    def _replace(self, connection: Connection, table: Table, rows: Sequence[Row]) -> None:
        if not rows:
            return
        statement = self._insert(table)
        keys = list(table.primary_key.columns)
        others = {column.name: statement.excluded[column.name] for column in table.c if column not in keys}
        connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=others), rows)


def _statistics_row(key: Key, sums: Sums) -> Row:
    names = ("seconds", "at", "type", "queue", "version")
    return {
        **dict(zip(names, key, strict=True)),
        **{name: sums.counts[name] for name in _COUNTS},
        "wait": histogram.encode(sums.wait),
        "run": histogram.encode(sums.run),
    }


def _prune(connection: Connection, retention: Mapping[TaskState, timedelta], now_us: int, limit: int) -> int:
    removed = sum(_prune_state(connection, state, now_us - _us(age), limit) for state, age in retention.items())
    for seconds, age in KEPT.items():
        for table in (STATISTICS, CAUSES):
            old = table.c.seconds == seconds, table.c.at < (now_us - _us(age)) // 1_000_000
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


def _us(age: timedelta) -> int:
    return int(age.total_seconds() * 1_000_000)
