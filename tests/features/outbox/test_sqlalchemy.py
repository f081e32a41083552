"""Rows are written in the transaction of the caller, by sessions and connections of both kinds."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from sqlalchemy import Engine, MetaData, inspect, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from firmq import new_task, outbox
from firmq.outbox.rows import RowState
from firmq.outbox.sqlalchemy import SqlTable
from tests.features.outbox.handlers import invoice


def written(table: SqlTable) -> list[dict[str, Any]]:
    """The tasks of the rows that are there, in order."""
    with table.transaction() as rows:
        return [json.loads(row.task) for row in rows.waiting(0, 100)]


def test_a_committed_row_is_there_and_a_rolled_back_one_is_not(engine: Engine, table: SqlTable) -> None:
    with Session(engine) as session, session.begin():
        task_id = outbox.add(session, invoice, order=1)
    with Session(engine) as session:
        outbox.add(session, invoice, order=2)
        session.flush()
        session.rollback()
    assert written(table) == [{"type": "outbox-invoice", "data": {"order": 1}}]
    assert len(task_id) == 26


def test_a_savepoint_takes_its_rows_with_it(engine: Engine, table: SqlTable) -> None:
    with Session(engine) as session, session.begin():
        outbox.add(session, invoice, order=1)
        with session.begin_nested() as savepoint:
            outbox.add(session, invoice, order=2)
            savepoint.rollback()
        with session.begin_nested():
            outbox.add(session, invoice, order=3)
    assert [each["data"]["order"] for each in written(table)] == [1, 3]


def test_a_row_holds_the_largest_task_and_every_character(engine: Engine, table: SqlTable) -> None:
    text = "\U0001f40d" * 60_000  # 720 kB of JSON
    with Session(engine) as session, session.begin():
        task_id = outbox.add(session, new_task("résumé", text))
    assert [each["data"] for each in written(table)] == [text]
    with table.transaction() as rows:
        rows.mark_refused(task_id, "не")
    assert [each.error for each in table.refused(1)] == ["не"]


def test_options_and_tasks_by_name_are_written(engine: Engine, table: SqlTable) -> None:
    with Session(engine) as session, session.begin():
        outbox.add(session, invoice.options(delay=60, tags=["a"]), 7)
        outbox.add(session, new_task("resize", {"url": "u"}, priority="high"))
    assert written(table) == [
        {"type": "outbox-invoice", "data": {"order": 7}, "delay": 60, "tags": ["a"]},
        {"type": "resize", "data": {"url": "u"}, "priority": "high"},
    ]


def test_a_connection_and_a_scoped_session_write_rows(engine: Engine, table: SqlTable) -> None:
    with engine.begin() as connection:
        outbox.add(connection, invoice, order=1)
    sessions = scoped_session(sessionmaker(engine))
    outbox.add(sessions, invoice, order=2)
    sessions.commit()
    sessions.remove()
    assert [each["data"]["order"] for each in written(table)] == [1, 2]


def test_sessions_and_connections_for_asyncio_write_rows(engine: Engine, table: SqlTable) -> None:
    if engine.dialect.name == "mysql":
        pytest.skip("PyMySQL is for threads only")

    async def write(async_engine: AsyncEngine) -> None:
        async with AsyncSession(async_engine) as session, session.begin():
            outbox.add(session, invoice, order=1)
        async with AsyncSession(async_engine) as session:
            outbox.add(session, invoice, order=2)
        async with async_engine.begin() as connection:
            await connection.run_sync(outbox.create_table)
            await connection.run_sync(outbox.add, new_task("outbox-invoice", {"order": 3}))
        await async_engine.dispose()

    url = engine.url if table.locks else f"sqlite+aiosqlite:///{engine.url.database}"
    asyncio.run(write(create_async_engine(url)))
    assert [each["data"]["order"] for each in written(table)] == [1, 3]


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ((invoice, "seven"), ValidationError),
        ((invoice,), TypeError),
        (("outbox-invoice",), TypeError),
        ((new_task("outbox-invoice", {"order": 1}), 1), TypeError),
        ((new_task("outbox-invoice", {"order": 1}, item="a"),), ValueError),
        ((invoice.options(idempotency_key="k"), 1), ValueError),
    ],
)
def test_what_is_not_a_task_is_refused_before_it_is_written(
    engine: Engine, table: SqlTable, given: Any, error: type[Exception]
) -> None:
    with Session(engine) as session, session.begin(), pytest.raises(error):
        outbox.add(session, *given)
    assert written(table) == []


def test_the_table_can_be_part_of_the_metadata_of_an_application(engine: Engine, tmp_path: Path) -> None:
    metadata = MetaData()
    outbox.outbox_table(metadata)
    metadata.create_all(engine)
    table = SqlTable(engine)
    table.create()
    with Session(engine) as session, session.begin():
        outbox.add(session, invoice, order=1)
    assert len(written(table)) == 1
    [index] = inspect(engine).get_indexes("firmq_outbox")[:1]
    assert index["name"]


def test_states_of_rows_have_their_default_in_the_database(engine: Engine, table: SqlTable) -> None:
    """So that other programs can write rows with plain SQL."""
    with engine.begin() as connection:
        insert = "INSERT INTO firmq_outbox (task_id, type, task, created_at) VALUES ('1', 'a', '{}', '2026-01-01')"
        connection.execute(text(insert))
        assert connection.scalar(text("SELECT state FROM firmq_outbox")) == RowState.WAITING
