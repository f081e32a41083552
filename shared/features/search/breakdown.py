"""Counts tasks by the fields of their data and by their tags: which customers a failure hits, for example.

The tasks of a filter or a batch are read from Redis, at most `EXAMINED` of them: about a second of the caller's
time, and a few milliseconds of Redis at a time. Their data is bounded by its size too: a process that reads it has a
few hundred megabytes of memory, and ten thousand tasks can have ten gigabytes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from threading import Lock
from typing import Any

from firmq.shared.domain.csv_lines import csv_lines
from firmq.shared.domain.redaction import document_in
from firmq.shared.stores.batches import Batches
from firmq.shared.stores.selection import Room, Selection, Source
from firmq.shared.stores.tasks import Records, Unread

EXAMINED = 10_000
LARGE = 64 << 10
"""Bytes of stored data above which a task is not counted."""
MOST_VALUES = 100_000
"""Different values of a breakdown, at which it ends."""
MOST_WAITING = 4
_TURN = Lock()
"""Held by the one breakdown of this process that reads."""
SAMPLE = 100
"""Tasks whose data shows which fields there are."""
MOST_FIELDS = 12
_MOST_PATHS = 1000
_DEPTH = 3
_LONGEST = 200
OFTEN = 3


@dataclass(slots=True)
class Values:
    """How many tasks have each value; `missing` have none. A task with a list counts once for each of its items."""

    counts: Counter[str] = field(default_factory=Counter)
    missing: int = 0

    def add(self, values: Sequence[str]) -> None:
        self.counts.update(values)
        self.missing += not values

    @property
    def often(self) -> int:
        """Returns how many values more than three tasks have."""
        return sum(count > OFTEN for count in self.counts.values())

    def top(self, most: int | None = None) -> list[tuple[str, int]]:
        """Returns the values that most tasks have, and how many have each."""
        return sorted(self.counts.items(), key=lambda each: (-each[1], each[0]))[:most]


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """The values of `tasks` tasks: their tags, and each field of their data. `complete` means that these are all.

    `large` further tasks have more than LARGE bytes of data, and are not counted.
    """

    tasks: int
    complete: bool
    large: int = 0
    tags: Values
    fields: Mapping[str, Values]

    @property
    def size(self) -> int:
        """Returns about how many bytes of memory it takes."""
        return sum(150 + len(each) for values in (self.tags, *self.fields.values()) for each in values.counts)


class Breakdowns:
    """Breaks tasks down by their content."""

    def __init__(self, records: Records, batches: Batches) -> None:
        self.records = records
        self.batches = batches
        self.room = Room(MOST_WAITING, "breakdowns")

    def read(self, source: Source, named: str | None = None, most: int | None = None) -> Breakdown:
        """Returns the breakdown by tags and by the fields that the first tasks have, or by a given one.

        `named` is a path such as `customer.id`; about `most` tasks are examined, by default `EXAMINED`. Raises
        BatchNotFound, and TooManyAtOnce while MOST_WAITING others are read.
        """
        with self.room.entered(), _TURN:
            return self._read(source, named, EXAMINED if most is None else most)

    def _read(self, source: Source, named: str | None, most: int) -> Breakdown:
        tags, fields = Values(), {named: Values()} if named else None
        tasks = large = values = 0
        selection = Selection(self.records, self.batches, source)
        for summaries in selection:
            if tasks + large >= most or values > MOST_VALUES:
                break
            read = partial(self.records.small_data, most=LARGE, deleted=source.wanted.deleted)
            if fields is None:
                fields = {name: Values() for name in _names(data for _, data in read(summaries[:SAMPLE]))}
            for each, data in read(summaries):
                if data is Unread.LARGE:
                    large += 1
                elif values <= MOST_VALUES:
                    tasks += 1
                    tags.add(each.tags)
                    for name, counted in fields.items():
                        counted.add(values_at(data, name.split(".")))
                    values = sum(len(counted.counts) for counted in (tags, *fields.values()))
        complete = selection.is_complete and values <= MOST_VALUES
        return Breakdown(tasks=tasks, complete=complete, large=large, tags=tags, fields=fields or {})


def as_csv(found: Breakdown, named: str | None) -> bytes:
    """Returns the values of a field, or of the tags, as CSV."""
    values = found.fields[named] if named else found.tags
    rows = ([value, str(count)] for value, count in values.top())
    return b"".join(csv_lines(chain([[named or "tag", "tasks"]], rows)))


def values_at(data: Any, path: Sequence[str]) -> list[str]:
    """Returns the values at a path as texts, each once; none where there is no value, or an object, also as JSON."""
    for name in path:
        if not isinstance(data, dict) or name not in data:
            return []
        data = data[name]
    found = data if isinstance(data, list) else [data]
    return list(dict.fromkeys(_text(each) for each in found if each is not None and not _is_document(each)))


def _is_document(value: Any) -> bool:
    return document_in(value) is not None if isinstance(value, str) else isinstance(value, dict | list)


def _text(value: Any) -> str:
    return (value if isinstance(value, str) else json.dumps(value))[:_LONGEST]


def _names(data: Iterable[Any]) -> list[str]:
    """Returns the paths of the fields that have values, the most frequent first."""
    found: Counter[str] = Counter()
    for each in data:
        found.update(islice(_paths(each, ""), _MOST_PATHS))
    return [name for name, _ in found.most_common(MOST_FIELDS)]


def _paths(data: Any, inside: str) -> Iterator[str]:
    if not isinstance(data, dict):
        return
    for name, value in data.items():
        path = f"{inside}{name}"
        if "." in name or len(path) > _LONGEST:
            continue  # no path leads to it
        if isinstance(value, dict):
            if path.count(".") < _DEPTH - 1:
                yield from _paths(value, f"{path}.")
        elif values_at(value, ()):
            yield path
