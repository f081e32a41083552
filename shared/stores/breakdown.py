"""Counts tasks by the fields of their data and by their tags: which customers a failure hits, for example.

The tasks are those of a filter or a batch that Redis has, at most `EXAMINED` of them: about a second of the caller's
time, and a few milliseconds of Redis at a time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from taskqueue.shared.domain import task_data
from taskqueue.shared.domain.csv_lines import csv_lines
from taskqueue.shared.domain.decode import UNREADABLE
from taskqueue.shared.domain.strict_json import load_anything
from taskqueue.shared.domain.task import TaskSummary
from taskqueue.shared.errors import CorruptRecord
from taskqueue.shared.redis.client import raw, translated
from taskqueue.shared.redis.quarantine import without_corrupt
from taskqueue.shared.stores.batches import Batches
from taskqueue.shared.stores.selection import Selection, Source
from taskqueue.shared.stores.tasks import Records

EXAMINED = 10_000
SAMPLE = 100
"""Tasks whose data tells which fields there are."""
MOST_FIELDS = 12
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
    """The values of `tasks` tasks: their tags, and each field of their data. `complete` means that these are all."""

    tasks: int
    complete: bool
    tags: Values
    fields: Mapping[str, Values]


class Breakdowns:
    """Breaks tasks down by their content."""

    def __init__(self, records: Records, batches: Batches) -> None:
        self.records = records
        self.batches = batches

    def read(self, source: Source, named: str | None = None, most: int | None = None) -> Breakdown:
        """Returns the breakdown by tags and by the fields that the first tasks have, or by the one that is named.

        `named` is a path such as `customer.id`; about `most` tasks are examined, by default `EXAMINED`. Raises
        BatchNotFound.
        """
        tags, fields = Values(), {named: Values()} if named else None
        tasks, selection = 0, Selection(self.records, self.batches, source)
        for summaries in selection:
            if tasks >= (EXAMINED if most is None else most):
                break
            data = self._data(summaries, source.wanted.deleted)
            fields = fields if fields is not None else {name: Values() for name in _names(data[:SAMPLE])}
            tasks += len(summaries)
            for each in summaries:
                tags.add(each.tags)
            for name, values in fields.items():
                path = name.split(".")
                for each_data in data:
                    values.add(values_at(each_data, path))
        return Breakdown(tasks=tasks, complete=selection.is_complete, tags=tags, fields=fields or {})

    def _data(self, tasks: Sequence[TaskSummary], deleted: bool) -> list[Any]:
        """Returns the data of each task; None for one that cannot be read."""
        key = self.records.keys.deleted if deleted else self.records.keys.rq_job
        with translated(), self.records.redis.pipeline(transaction=False) as pipeline:
            for each in tasks:
                pipeline.hget(key(each.id), "data")
            rows = without_corrupt(pipeline.execute(raise_on_error=False), None)
        return [_read(each.type, row) for each, row in zip(tasks, rows, strict=True)]


def as_csv(found: Breakdown, named: str | None) -> bytes:
    """Returns the values of a field, or of the tags, as CSV."""
    values = found.fields[named] if named else found.tags
    rows = ([value, str(count)] for value, count in values.top())
    return b"".join(csv_lines(chain([[named or "tag", "tasks"]], rows)))


def values_at(data: Any, path: Sequence[str]) -> list[str]:
    """Returns the values at a path as texts, each once; none where there is no value, or an object."""
    for name in path:
        if not isinstance(data, dict) or name not in data:
            return []
        data = data[name]
    found = data if isinstance(data, list) else [data]
    return list(dict.fromkeys(_text(each) for each in found if each is not None and not isinstance(each, dict | list)))


def _text(value: Any) -> str:
    return (value if isinstance(value, str) else json.dumps(value))[:_LONGEST]


def _names(data: Sequence[Any]) -> list[str]:
    """Returns the paths of the fields that have values, the most frequent first."""
    found: Counter[str] = Counter()
    for each in data:
        found.update(_paths(each, ""))
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


def _read(task_type: str, stored: Any) -> Any:
    try:
        data = task_data.decode(task_type, raw(stored)) if stored else None
        return load_anything(data) if isinstance(data, bytes) else None  # large data is not in Redis
    except (CorruptRecord, *UNREADABLE):
        return None
