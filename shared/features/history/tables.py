"""The tables of the history.

Times are microseconds since 1970 by Redis' clock, as in Redis: both databases compare them alike, and cursors of lists
continue from one store to the other. The start of a period in the statistics is in seconds.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    inspect,
    select,
)

from firmq.shared.errors import IncompatibleSchema
from firmq.shared.features.history.rows import COUNTS

METADATA = MetaData()

TASKS = Table(
    "firmq_history",
    METADATA,
    Column("task_id", String(128), primary_key=True),
    Column("ended_at", BigInteger, primary_key=True, autoincrement=False),
    Column("state", String(9), nullable=False),
    Column("type", String(100), nullable=False),
    Column("queue", String(64), nullable=False),
    Column("version", String(64), nullable=False),
    Column("worker", String(200), nullable=False),
    Column("created_at", BigInteger),
    Column("wait_us", BigInteger),
    Column("run_us", BigInteger),
    Column("attempts", Integer, nullable=False),
    Column("error", String(200)),
    Column("cause", String(16)),
    # The fields of the record, as an object of texts in JSON; the result is base64 of JSON, as in Redis.
    Column("record", Text, nullable=False),
    Column("result", Text),
    # A list is by state: one without a state or with several merges these, which are few.
    Index("firmq_history_by_state", "state", "ended_at", "task_id"),
    Index("firmq_history_by_type", "type", "state", "ended_at", "task_id"),
)

TAGS = Table(
    "firmq_history_tags",
    METADATA,
    Column("tag", String(64), primary_key=True),
    Column("ended_at", BigInteger, primary_key=True, autoincrement=False),
    Column("task_id", String(128), primary_key=True),
    Index("firmq_history_tags_of_task", "task_id", "ended_at"),
)

STATISTICS = Table(
    "firmq_history_statistics",
    METADATA,
    Column("seconds", Integer, primary_key=True, autoincrement=False),
    Column("at", BigInteger, primary_key=True, autoincrement=False),
    Column("type", String(100), primary_key=True),
    Column("queue", String(64), primary_key=True),
    Column("version", String(64), primary_key=True),
    *(Column(name, BigInteger, nullable=False) for name in COUNTS),
    # Histograms (`shared/domain/histogram.py`).
    Column("wait", LargeBinary, nullable=False),
    Column("run", LargeBinary, nullable=False),
)

CAUSES = Table(
    "firmq_history_causes",
    METADATA,
    Column("seconds", Integer, primary_key=True, autoincrement=False),
    Column("at", BigInteger, primary_key=True, autoincrement=False),
    Column("type", String(100), primary_key=True),
    Column("cause", String(16), primary_key=True),
    Column("error", String(400), nullable=False),
    Column("failed", BigInteger, nullable=False),
)

SCHEMA = Table("firmq_history_schema", METADATA, Column("version", Integer, nullable=False))

VERSION = 1


def create(connection: Connection) -> None:
    """Makes tables that are missing. Raises IncompatibleSchema for a database of a later version."""
    if not inspect(connection).has_table(SCHEMA.name):
        METADATA.create_all(connection)
        connection.execute(SCHEMA.insert().values(version=VERSION))
        return
    found = connection.execute(select(SCHEMA.c.version)).scalar_one()
    if found > VERSION:
        raise IncompatibleSchema(
            f"the history in the database has version {found}, and this version of Firmq knows {VERSION}: "
            "upgrade this part, or name another database in HISTORY_URL"
        )
