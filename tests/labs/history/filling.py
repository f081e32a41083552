"""Fills a PostgreSQL with the ended tasks of two months and the statistics of two years."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Engine, text

from firmq.shared.domain import histogram
from firmq.shared.features.history.feeding import KEPT
from firmq.shared.features.history.tables import CAUSES, METADATA, STATISTICS, create

TYPES = 20
QUEUES = ("default", "mail", "reports", "low")
DAYS = 60
"""Days over which the tasks ended."""
_AT_ONCE = 250_000
_TASKS = """
INSERT INTO firmq_history
SELECT task_id, ended_at, state, type, queue, version, worker, ended_at - 3000000, 2000000, run_us, 1, error, cause,
  json_build_object(
    'description', type, 'origin', queue, 'state', state,
    'data', '{"order":' || n || ',"customer":"c' || n % 900 || '"}',
    'created_at', stamp, 'enqueued_at', stamp, 'started_at', stamp, 'ended_at', stamp, 'attempt', 1, 'tags', '["eu"]',
    'error', coalesce('{"type":"ValueError","message":"' || error || '","place":"shop.py:7","pattern":"refused"}', ''),
    'attempt:1', '{"worker":"' || worker || '","app_version":"' || version || '","outcome":"completed","started_at":'
      || ended_at - run_us || ',"ended_at":' || ended_at || '}')::text,
  CASE state WHEN 'completed' THEN 'eyJvayI6dHJ1ZX0=' END
FROM (
  SELECT n, '01H' || lpad(upper(to_hex(n)), 23, '0') task_id, ended_at, 'type-' || n % CAST(:types AS bigint) AS type,
    (array['default', 'mail', 'reports', 'low'])[n % 4 + 1] queue, '1.' || (n * 12 / CAST(:rows AS bigint)) AS version,
    'worker-' || n % 12 AS worker, (1000 + n % 997 * 400)::bigint run_us,
    CASE WHEN n % 49 = 0 THEN 'failed' WHEN n % 333 = 0 THEN 'cancelled' ELSE 'completed' END state,
    CASE WHEN n % 49 = 0 THEN 'order ' || n || ' is refused' END error,
    CASE WHEN n % 49 = 0 THEN lpad(to_hex(n % 600), 16, '0') END cause,
    to_char(to_timestamp(ended_at / 1e6) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') stamp
  FROM (
    SELECT n::bigint n, n % 1000000 + 1000000 * (CAST(:until AS bigint) - CAST(:span AS bigint)
      + n::numeric / CAST(:rows AS bigint) * CAST(:span AS bigint))::bigint ended_at
    FROM generate_series(CAST(:first AS bigint), CAST(:last AS bigint)) n) moments) rows
"""
_TAGS = """
INSERT INTO firmq_history_tags SELECT 'eu', ended_at, task_id FROM firmq_history WHERE ended_at % 10 = 0
"""


def fill(engine: Engine, rows: int) -> None:
    """Stores so many tasks, and statistics of as many periods as are kept."""
    until = int(time.time())
    with engine.begin() as connection:
        METADATA.drop_all(connection)
        create(connection)
    for first in range(0, rows, _AT_ONCE):
        last = min(first + _AT_ONCE, rows) - 1
        values = {"rows": rows, "types": TYPES, "until": until, "span": DAYS * 86400, "first": first, "last": last}
        with engine.begin() as connection:
            connection.execute(text(_TASKS), values)
    with engine.begin() as connection:
        connection.execute(text(_TAGS))
        _fill_statistics(connection, until)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))


def _fill_statistics(connection: Connection, until: int) -> None:
    durations = [_durations(random.Random(seed)) for seed in range(50)]
    for seconds, kept in KEPT.items():
        age = int(kept.total_seconds())
        for at in range((until - age) // seconds * seconds, until, seconds):
            connection.execute(STATISTICS.insert(), list(_statistics(seconds, at, until, durations)))
            connection.execute(CAUSES.insert(), list(_causes(seconds, at)))


def _statistics(seconds: int, at: int, until: int, durations: list[bytes]) -> Iterator[dict[str, Any]]:
    """Yields a row for each type, of which each has its queue; at two moments of three one version serves, else two."""
    newest = 12 - (until - at) * 12 // (KEPT[86400].total_seconds() + 1)
    for number in range(TYPES):
        for version in range(2 if at // seconds % 3 == 0 else 1):
            yield {
                "seconds": seconds, "at": at, "type": f"type-{number}", "queue": QUEUES[number % 4],
                "version": f"1.{newest - version:.0f}", "completed": seconds, "failed": seconds // 50, "cancelled": 0,
                "expired": 0, "retried": seconds // 20, "crashed": 0,
                "wait": random.choice(durations), "run": random.choice(durations),
            }  # fmt: skip


def _causes(seconds: int, at: int) -> Iterator[dict[str, Any]]:
    for number in range(TYPES):
        for cause in range(3):
            key = f"{(number * 7 + cause):016x}"
            yield {
                "seconds": seconds, "at": at, "type": f"type-{number}", "cause": key,
                "error": f"ValueError: order {at} is refused", "failed": 1 + seconds // 150,
            }  # fmt: skip


def _durations(chance: random.Random) -> bytes:
    return histogram.encode(sum(histogram.of(chance.lognormvariate(-2, 1.2)) for _ in range(500)))
