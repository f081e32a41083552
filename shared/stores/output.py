"""The output that handlers write while they run, in a stream for each task."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from taskqueue.shared.redis.client import keys_of, translated

if TYPE_CHECKING:
    from redis import Redis

START = "0-0"
"""The place before the first entry."""
_PLACE = re.compile(r"(\d{1,20})-(\d{1,20})")


@dataclass(frozen=True, slots=True)
class OutputEntry:
    """A chunk of output, in JSON; None where a task has reached MAX_OUTPUT_BYTES. `id` is its place in the stream."""

    id: str
    attempt: int
    chunk: bytes | None


def place(entry_id: str) -> tuple[int, int] | None:
    """Returns the place of an entry for comparisons; None for what is no id."""
    found = _PLACE.fullmatch(entry_id)
    return (int(found[1]), int(found[2])) if found else None


class Outputs:
    """Reads the output of tasks."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.keys = keys_of(redis)

    def after(self, wanted: Mapping[str, str]) -> dict[str, tuple[OutputEntry, ...]]:
        """Returns the entries behind these places by task, in order. Raises StoreUnavailable."""
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            for task_id, last in wanted.items():
                pipeline.xrange(self.keys.output(task_id), min=f"({last}")
            rows = pipeline.execute(raise_on_error=False)
        return {task_id: _entries(row) for task_id, row in zip(wanted, rows, strict=True)}

    def latest(self, task_id: str, most: int) -> list[OutputEntry]:
        """Returns the last entries of a task, in order. Raises StoreUnavailable."""
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            pipeline.xrevrange(self.keys.output(task_id), count=most)
            [rows] = pipeline.execute(raise_on_error=False)
        return list(_entries(rows))[::-1]


def _entries(rows: object) -> tuple[OutputEntry, ...]:
    """Returns entries; none for a key that holds something else."""
    if not isinstance(rows, list):
        return ()
    return tuple(
        OutputEntry(name.decode(), int(fields.get(b"attempt", 0)), fields.get(b"chunk")) for name, fields in rows
    )
