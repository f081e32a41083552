"""Databases for tests of the outbox: SQLite, a PostgreSQL of the tests, and the server of TEST_MYSQL_URL if given."""

from __future__ import annotations

import os
from collections.abc import Iterator

from sqlalchemy import Engine, create_engine, event, text

MYSQL = os.environ.get("TEST_MYSQL_URL", "")
"""Such as mysql+pymysql://root@127.0.0.1/base, also for MariaDB; with its driver installed.

Its outbox is dropped and made again by each test.
"""
DATABASES = ("sqlite", "postgresql", *(["mysql"] if MYSQL else []))


def empty_database(url: str) -> Iterator[Engine]:
    """Yields an engine on a database without tables of ours."""
    engine = create_engine(url)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA journal_mode=WAL"))
    with engine.begin() as connection:
        for table in ("firmq_outbox", "orders", "django_migrations"):
            connection.execute(text(f"DROP TABLE IF EXISTS {table}"))
    yield engine
    engine.dispose()
