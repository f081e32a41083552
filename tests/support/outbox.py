"""Databases for tests of the outbox: SQLite always, and the server of TEST_POSTGRESQL_URL where it is given."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Engine, create_engine, event, text

POSTGRESQL = os.environ.get("TEST_POSTGRESQL_URL", "")
"""Such as postgresql+psycopg://user@/base; its outbox is dropped and made again by each test."""
DATABASES = ("sqlite", *(("postgresql",) if POSTGRESQL else ()))


def url_of(database: str, folder: Path) -> str:
    return POSTGRESQL if database == "postgresql" else f"sqlite:///{folder / 'shop.db'}"


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
