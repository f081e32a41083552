"""`submit_on_commit`: nothing is submitted before the commit, and nothing for what is rolled back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from firmq import outbox, use_client
from firmq.shared.client import Unreachable
from tests.features.outbox.handlers import invoice


class Client:
    """Remembers what is submitted."""

    def __init__(self) -> None:
        self.orders: list[int] = []
        self.options: list[dict[str, Any]] = []
        self.away = False

    def submit(self, task_type: str, data: Any = None, **options: Any) -> Any:
        if self.away:
            raise Unreachable("no gateway")
        self.orders.append(data["order"])
        self.options.append(options)


class AsyncClient(Client):
    async def submit(self, task_type: str, data: Any = None, **options: Any) -> Any:
        await asyncio.sleep(0)
        return super().submit(task_type, data, **options)


@pytest.fixture
def client() -> Iterator[Client]:
    client = Client()
    before = use_client(client)
    yield client
    use_client(*before)


@pytest.fixture
def engine() -> Engine:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE orders (id INTEGER)"))
    return engine


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    with Session(engine) as session:
        yield session


def test_a_task_is_submitted_when_the_transaction_has_committed(session: Session, client: Client) -> None:
    outbox.submit_on_commit(session, invoice, order=1)
    outbox.submit_on_commit(session, invoice.options(priority="high"), 2)
    assert client.orders == []
    session.commit()
    assert client.orders == [1, 2]
    assert client.options[1]["priority"] == "high"
    session.commit()
    assert client.orders == [1, 2]


@pytest.mark.parametrize("end", ["rollback", "close"])
def test_nothing_is_submitted_for_a_transaction_that_did_not_commit(session: Session, client: Client, end: str) -> None:
    outbox.submit_on_commit(session, invoice, order=1)
    getattr(session, end)()
    session.execute(text("INSERT INTO orders VALUES (1)"))
    session.commit()
    assert client.orders == []


def test_a_savepoint_that_is_rolled_back_takes_its_tasks_with_it(session: Session, client: Client) -> None:
    with session.begin():
        outbox.submit_on_commit(session, invoice, order=1)
        with session.begin_nested() as savepoint:
            outbox.submit_on_commit(session, invoice, order=2)
            with session.begin_nested():
                outbox.submit_on_commit(session, invoice, order=3)
            savepoint.rollback()
        with session.begin_nested():
            outbox.submit_on_commit(session, invoice, order=4)
            with session.begin_nested():
                outbox.submit_on_commit(session, invoice, order=5)
        assert client.orders == []
    assert client.orders == [1, 4, 5]


def test_a_released_savepoint_submits_nothing_if_its_transaction_is_rolled_back(
    session: Session, client: Client
) -> None:
    with session.begin_nested():
        outbox.submit_on_commit(session, invoice, order=1)
    session.rollback()
    session.commit()
    assert client.orders == []


def test_a_failed_commit_submits_nothing(session: Session, client: Client) -> None:
    session.execute(text("PRAGMA foreign_keys = ON"))
    session.execute(text("CREATE TABLE parents (id INTEGER PRIMARY KEY)"))
    deferred = "REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED"
    session.execute(text(f"CREATE TABLE children (parent INTEGER {deferred})"))
    session.commit()
    outbox.submit_on_commit(session, invoice, order=1)
    session.execute(text("INSERT INTO children VALUES (1)"))
    with pytest.raises(Exception, match="FOREIGN KEY"):
        session.commit()
    session.rollback()
    assert client.orders == []


def test_an_error_of_the_submission_is_logged_and_the_commit_succeeds(
    session: Session, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.away = True
    outbox.submit_on_commit(session, invoice, order=1)
    session.execute(text("INSERT INTO orders VALUES (1)"))
    session.commit()
    assert "a task was not submitted" in caplog.text
    assert session.scalar(text("SELECT count(*) FROM orders")) == 1


def test_arguments_are_checked_at_once(session: Session, client: Client) -> None:
    with pytest.raises(ValidationError):
        outbox.submit_on_commit(session, invoice, order="seven")  # type: ignore[arg-type]


def test_a_scoped_session_submits(engine: Engine, client: Client) -> None:
    sessions = scoped_session(sessionmaker(engine))
    outbox.submit_on_commit(sessions, invoice, order=1)
    sessions.commit()
    assert client.orders == [1]
    sessions.remove()


def test_a_session_for_asyncio_awaits_its_client() -> None:
    async def commit(client: AsyncClient) -> None:
        engine = create_async_engine("sqlite+aiosqlite://")
        async with AsyncSession(engine) as session:
            outbox.submit_on_commit(session, invoice, order=1)
            await session.commit()
            outbox.submit_on_commit(session, invoice, order=2)
            await session.rollback()
        await engine.dispose()

    client = AsyncClient()
    before = use_client(client)
    try:
        asyncio.run(commit(client))
    finally:
        use_client(*before)
    assert client.orders == [1]
