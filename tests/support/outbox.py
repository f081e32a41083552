"""Databases for tests of the outbox: SQLite, and the servers of TEST_POSTGRESQL_URL and TEST_MYSQL_URL if given."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Engine, create_engine, event, text

POSTGRESQL = os.environ.get("TEST_POSTGRESQL_URL", "")
"""Such as postgresql+psycopg://user@/base; its outbox is dropped and made again by each test."""
MYSQL = os.environ.get("TEST_MYSQL_URL", "")
"""Such as mysql+pymysql://root@127.0.0.1/base, also for MariaDB; with its driver installed."""
_SERVERS = {"postgresql": POSTGRESQL, "mysql": MYSQL}
DATABASES = ("sqlite", *(name for name, url in _SERVERS.items() if url))


def url_of(database: str, folder: Path) -> str:
    return _SERVERS.get(database) or f"sqlite:///{folder / 'shop.db'}"


def empty_database(database: str, folder: Path) -> Iterator[Engine]:
    """Yields an engine on a database without tables of ours."""
    engine = create_engine(url_of(database, folder))
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA journal_mode=WAL"))
    with engine.begin() as connection:
        for table in ("taskqueue_outbox", "orders", "django_migrations"):
            connection.execute(text(f"DROP TABLE IF EXISTS {table}"))
    yield engine
    engine.dispose()
