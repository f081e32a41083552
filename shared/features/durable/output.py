"""The output that handlers write while they run, in a stream for each task."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from firmq.shared.redis.client import keys_of, translated

if TYPE_CHECKING:
    from redis import Redis

START = "0-0"
"""The id before the first entry."""
PAGES_AT_ONCE = 16
PAGE_ENTRIES = 64
PAGE_BYTES = 32 << 10
"""A page has at most so many entries, and chunks of so many bytes or one larger chunk."""
_LINE_END = re.compile(rb"[\r\n]")
"""Would end a field of an event stream."""


@dataclass(frozen=True, slots=True)
class OutputEntry:
    """A chunk of output, in JSON; None where a task has reached MAX_OUTPUT_BYTES. Ids grow in the order of
    the stream."""

    id: str
    attempt: int
    chunk: bytes | None


@dataclass(frozen=True, slots=True)
class OutputPage:
    """Entries after a place in the output of a task; `last` is the place of the end of the page."""

    entries: tuple[OutputEntry, ...]
    last: str
    more: bool


class Outputs:
    """Reads the output of tasks."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.keys = keys_of(redis)

    def after(self, wanted: Sequence[tuple[str, str]]) -> Iterator[OutputPage]:
        """Yields the page after each of these ids, of a task and of an entry. Raises StoreUnavailable."""
        for start in range(0, len(wanted), PAGES_AT_ONCE):
            group = wanted[start : start + PAGES_AT_ONCE]
            with translated(), self.redis.pipeline(transaction=False) as pipeline:
                for task_id, last in group:
                    pipeline.xrange(self.keys.output(task_id), min=f"({last}", count=PAGE_ENTRIES)
                pages = [_page(last, rows) for (_, last), rows in zip(group, pipeline.execute(False), strict=True)]
            yield from pages

    def latest(self, task_id: str, most: int) -> list[OutputEntry]:
        """Returns the last entries of a task, in order. Raises StoreUnavailable."""
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            pipeline.xrevrange(self.keys.output(task_id), count=most)
            [rows] = pipeline.execute(raise_on_error=False)
        return list(_entries(rows))[::-1]


def _page(last: str, rows: object) -> OutputPage:
    if not isinstance(rows, list) or not rows:
        return OutputPage((), last, more=False)
    sizes = accumulate(len(fields.get(b"chunk", b"")) for _, fields in rows)
    kept = rows[: max(1, sum(size <= PAGE_BYTES for size in sizes))]
    return OutputPage(_entries(kept), kept[-1][0].decode(), len(kept) < len(rows) or len(rows) == PAGE_ENTRIES)


def _entries(rows: object) -> tuple[OutputEntry, ...]:
    """Returns entries without those that `output_append.lua` has not written; none for a key with something else."""
    if not isinstance(rows, list):
        return ()
    return tuple(
        OutputEntry(name.decode(), int(fields[b"attempt"]), fields.get(b"chunk"))
        for name, fields in rows
        if fields.get(b"attempt", b"").isdigit() and not _LINE_END.search(fields.get(b"chunk", b""))
    )
