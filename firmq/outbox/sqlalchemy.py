"""The outbox for SQLAlchemy 2: its table, writing rows in the caller's transaction, and reading them for a relay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, overload

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    DateTime,
    Engine,
    Index,
    Integer,
    MetaData,
    Select,
    String,
    Table,
    Text,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.dialects.mysql import MEDIUMTEXT
from sqlalchemy.orm import Session, registry, scoped_session

from firmq.outbox.rows import TABLE, Backlog, RefusedRow, Row, RowState, new_row
from firmq.worker.handlers.task_function import Submission

if TYPE_CHECKING:  # needs greenlet, which SQLAlchemy 2.1 does not bring along
    from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session

P = ParamSpec("P")
AnySession: TypeAlias = "Session | AsyncSession | scoped_session[Any] | async_scoped_session[Any]"
_LOCKING = frozenset({"postgresql", "mysql", "mariadb"})
"""Dialects of databases with SELECT ... FOR UPDATE SKIP LOCKED."""
_LONG_TEXT = Text().with_variant(MEDIUMTEXT(), "mysql", "mariadb")
"""Has room for the largest task: TEXT of MySQL holds 64 kB."""


def outbox_table(metadata: MetaData) -> Table:
    """Returns the table of the outbox as part of `metadata`, for Alembic and `create_all`."""
    return Table(
        TABLE,
        metadata,
        Column("position", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
        Column("task_id", String(26), nullable=False, unique=True),
        Column("type", String(100), nullable=False),
        Column("task", _LONG_TEXT, nullable=False),
        Column("traceparent", String(55)),
        Column("created_at", DateTime(timezone=True), nullable=False),
        Column("state", String(8), nullable=False, server_default=RowState.WAITING),
        Column("error", Text),
        Index(f"{TABLE}_in_order", "state", "position"),
        # Older servers have Latin-1 by default, which holds neither every type nor every reason.
        mysql_charset="utf8mb4",
        mariadb_charset="utf8mb4",
    )


_table = outbox_table(MetaData())
_columns = _table.c


class OutboxRow:
    """A row as an object of a session, which writes it with all others. `Session(binds=...)` can name it."""

    def __init__(self, **values: Any) -> None:
        for name, value in values.items():
            setattr(self, name, value)


_registry = registry()
_registry.map_imperatively(OutboxRow, _table)


def create_table(connection: Connection) -> None:
    """Creates the table if it is missing. With an AsyncConnection: `await connection.run_sync(create_table)`."""
    _table.create(connection, checkfirst=True)


@overload
def add(session: AnySession | Connection, task: Submission[P], /, *args: P.args, **kwargs: P.kwargs) -> str: ...


@overload
def add(session: AnySession | Connection, task: Mapping[str, Any], /) -> str: ...


def add(session: AnySession | Connection, task: Any, /, *args: Any, **kwargs: Any) -> str:
    """Writes a task to the outbox in the transaction of `session`; returns the id that the task will have.

    `task` is a handler with its arguments, the result of its `options`, or a `new_task`. A session (also one
    for asyncio) writes the row when it flushes, at the latest when it commits; a connection writes it at once. With an
    AsyncConnection: `await connection.run_sync(add, task)`. Raises TypeError or ValueError for a value that is not
    a task, and the errors of a handler for arguments that do not fit.
    """
    row = new_row(task, *args, **kwargs)
    if isinstance(session, Connection):
        session.execute(insert(_table).values(**asdict(row), state=RowState.WAITING))
    else:
        session.add(OutboxRow(**asdict(row), state=RowState.WAITING))
    return row.task_id


class SqlTable:
    """The table as a relay sees it."""

    def __init__(self, engine: Engine) -> None:
        self.locks = engine.dialect.name in _LOCKING
        # With the usual REPEATABLE READ of MySQL, the locks of a relay would delay writers of rows.
        self.engine = engine.execution_options(isolation_level="READ COMMITTED") if self.locks else engine

    def create(self) -> None:
        """Creates the table if it is missing."""
        with self.engine.begin() as connection:
            create_table(connection)

    @contextmanager
    def transaction(self) -> Iterator[SqlRows]:
        with self.engine.begin() as connection:
            yield SqlRows(connection)

    def backlog(self) -> Backlog:
        """Returns how many rows there are. Reads the whole index."""
        query = select(_columns.state, func.count(), func.min(_columns.created_at)).group_by(_columns.state)
        with self.engine.connect() as connection:
            found = {state: (count, _utc(oldest)) for state, count, oldest in connection.execute(query)}
        waiting, oldest_at = found.get(RowState.WAITING, (0, None))
        return Backlog(waiting, found.get(RowState.REFUSED, (0, None))[0], oldest_at)

    def refused(self, limit: int) -> list[RefusedRow]:
        query = (
            select(_columns.task_id, _columns.type, _columns.created_at, _columns.error)
            .where(_columns.state == RowState.REFUSED)
            .order_by(_columns.position)
            .limit(limit)
        )
        with self.engine.connect() as connection:
            return [
                RefusedRow(task_id, task_type, _utc(at) or datetime.now(UTC), error or "")
                for task_id, task_type, at, error in connection.execute(query)
            ]

    def retry_refused(self) -> int:
        change = update(_table).where(_columns.state == RowState.REFUSED)
        with self.engine.begin() as connection:
            return connection.execute(change.values(state=RowState.WAITING, error=None)).rowcount


class SqlRows:
    """The rows within one transaction."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def waiting(self, after: int, limit: int) -> list[Row]:
        query = select(_columns.position, _columns.task_id, _columns.task, _columns.traceparent)
        query = query.where(_columns.position > after)
        return [Row(*each) for each in self.connection.execute(_first(query, RowState.WAITING, limit))]

    def sent(self, limit: int) -> list[str]:
        return list(self.connection.scalars(_first(select(_columns.task_id), RowState.SENT, limit)))

    def mark_sent(self, task_ids: Sequence[str]) -> None:
        waiting = _columns.task_id.in_(task_ids), _columns.state == RowState.WAITING
        self.connection.execute(update(_table).where(*waiting).values(state=RowState.SENT))

    def mark_refused(self, task_id: str, error: str) -> None:
        waiting = _columns.task_id == task_id, _columns.state == RowState.WAITING
        self.connection.execute(update(_table).where(*waiting).values(state=RowState.REFUSED, error=error))

    def delete_sent(self, task_ids: Sequence[str]) -> None:
        sent = _columns.task_id.in_(task_ids), _columns.state == RowState.SENT
        self.connection.execute(delete(_table).where(*sent))


def _first(query: Select[Any], state: RowState, limit: int) -> Select[Any]:
    # A dialect without such locks leaves them out.
    query = query.where(_columns.state == state).order_by(_columns.position).limit(limit)
    return query.with_for_update(skip_locked=True)


def _utc(at: datetime | None) -> datetime | None:
    """Returns an instant with its time zone, which SQLite and MySQL do not keep."""
    return at.replace(tzinfo=UTC) if at is not None and at.tzinfo is None else at
