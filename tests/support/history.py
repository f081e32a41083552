"""Databases for tests of the history: SQLite always, and the server of TEST_POSTGRESQL_URL where it is given."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, func, inspect, select

from firmq.shared.features.history.tables import METADATA, STATISTICS, TASKS

POSTGRESQL = os.environ.get("TEST_POSTGRESQL_URL", "")
DATABASES = ("sqlite", *(("postgresql",) if POSTGRESQL else ()))


def empty_history(database: str, folder: Path) -> Iterator[str]:
    """Yields the URL of a database without tables of the history."""
    url = POSTGRESQL if database == "postgresql" else f"sqlite:///{folder / 'history.db'}"
    engine = create_engine(url)
    METADATA.drop_all(engine)
    engine.dispose()
    yield url
    if database == "postgresql":
        engine = create_engine(url)
        METADATA.drop_all(engine)
        engine.dispose()


class Contents:
    """What is in the tables."""

    def __init__(self, url: str) -> None:
        self.engine = create_engine(url)

    def exist(self) -> bool:
        """Whether the housekeeper has made the tables."""
        with self.engine.connect() as connection:
            return inspect(connection).has_table(TASKS.name)

    def rows(self) -> list[Any]:
        """All rows, the oldest end first; none before there are tables."""
        if not self.exist():
            return []
        with self.engine.connect() as connection:
            return list(connection.execute(select(TASKS).order_by(TASKS.c.ended_at, TASKS.c.task_id)).mappings())

    def ends(self) -> list[tuple[str, str]]:
        """Id and state of each end, the oldest first."""
        return [(row["task_id"], row["state"]) for row in self.rows()]

    def total(self, what: str, seconds: int = 86400) -> int:
        """The sum of a count over all periods of one length."""
        query = select(func.sum(STATISTICS.c[what])).where(STATISTICS.c.seconds == seconds)
        with self.engine.connect() as connection:
            return int(connection.execute(query).scalar() or 0)
