"""Statistics of a time range beside the range before: sums, percentiles and causes of failure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import add
from typing import TYPE_CHECKING, Any

from sqlalchemy import Select, Table, func, select

from firmq.shared.domain import histogram
from firmq.shared.features.history.rows import COUNTS, Totals
from firmq.shared.features.history.tables import CAUSES, STATISTICS

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from firmq.shared.features.history.reading import History

NOTHING = (0,) * len(COUNTS) + (histogram.EMPTY, histogram.EMPTY)
MOST_NAMED = 50
"""Types, queues, versions or causes that are listed, the busiest first."""


@dataclass(frozen=True, slots=True)
class Range:
    """A length of time in seconds, and the step of its points: for all types, and for one, of which there is less."""

    seconds: int
    step: int
    step_of_type: int


RANGES: Mapping[str, Range] = {
    "1h": Range(3600, 60, 60),
    "6h": Range(6 * 3600, 300, 300),
    "24h": Range(86400, 3600, 900),
    "7d": Range(7 * 86400, 3 * 3600, 3 * 3600),
    "30d": Range(30 * 86400, 86400, 8 * 3600),
    "1y": Range(364 * 86400, 7 * 86400, 7 * 86400),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The request for a report: a range that ends at `until` (seconds since 1970), of one type, queue or version."""

    range: str
    until: int
    type: str | None = None
    queue: str | None = None
    version: str | None = None

    @property
    def step(self) -> int:
        chosen = RANGES[self.range]
        return chosen.step_of_type if self.type else chosen.step

    @property
    def ends(self) -> int:
        """Returns the end of the step that contains `until`."""
        return (self.until // self.step + 1) * self.step

    @property
    def begins(self) -> int:
        return self.ends - RANGES[self.range].seconds

    @property
    def grain(self) -> int:
        """Returns the length of the longest stored periods that fit into the steps."""
        return next(grain for grain in (86400, 3600, 60) if self.step % grain == 0)


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause of failures: fingerprint, type, an error, how many failed in the range, how many in the one before."""

    cause: str
    type: str
    error: str
    failed: int
    failed_before: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The statistics of a range. `points` and `points_before` have an entry for each step, in order."""

    wanted: Wanted
    total: Totals
    before: Totals
    points: Sequence[Totals]
    points_before: Sequence[Totals]
    types: Mapping[str, Totals]
    queues: Mapping[str, Totals]
    versions: Mapping[str, Totals]
    causes: Sequence[Cause]

    def start_of(self, point: int) -> int:
        """Returns the start of a point, in seconds since 1970."""
        return self.wanted.begins + point * self.wanted.step


def read_report(history: History, wanted: Wanted) -> Report:
    """Returns the statistics. Raises HistoryUnavailable."""

    def read(connection: Connection) -> tuple[Sequence[Any], Sequence[Cause]]:
        columns = [STATISTICS.c[name] for name in ("at", "type", "queue", "version", *COUNTS, "wait", "run")]
        rows = connection.execute(_rows(STATISTICS, wanted).with_only_columns(*columns))
        return rows.all(), _causes(connection, wanted)

    rows, causes = history.read(read) or ((), ())
    points, groups = _Sums(), _Sums()
    begins, step = wanted.begins, wanted.step
    for at, task_type, queue, version, *counts, wait, run in rows:
        values = (*counts, histogram.decode(wait), histogram.decode(run))
        points.add((at - begins) // step, values)
        if at >= begins:
            groups.add((task_type, queue, version), values)
    length = RANGES[wanted.range].seconds // step
    types, queues, versions = (_busiest(groups, place) for place in range(3))
    return Report(
        wanted=wanted,
        total=points.total(range(length)),
        before=points.total(range(-length, 0)),
        points=[points.total([point]) for point in range(length)],
        points_before=[points.total([point]) for point in range(-length, 0)],
        types=types,
        queues=queues,
        versions=versions,
        causes=causes,
    )


class _Sums(dict[Any, Sequence[int]]):
    """Sums of rows by a key: `COUNTS`, and histograms of waits and runs. A report adds ten thousands."""

    def add(self, key: Any, values: Sequence[int]) -> None:
        sums = self.get(key)
        self[key] = values if sums is None else list(map(add, sums, values))

    def total(self, keys: Iterable[Any]) -> Totals:
        found = _Sums()
        for key in keys:
            if key in self:
                found.add("", self[key])
        *counts, wait, run = found.get("", NOTHING)
        return Totals(Counter({name: count for name, count in zip(COUNTS, counts, strict=True) if count}), wait, run)


def _rows(table: Table, wanted: Wanted) -> Select[Any]:
    """Returns the rows of the range and of the range before."""
    columns = table.c
    first = wanted.begins - RANGES[wanted.range].seconds
    query = select(table).where(columns.seconds == wanted.grain, columns.at >= first, columns.at < wanted.ends)
    for name, value in (("type", wanted.type), ("queue", wanted.queue), ("version", wanted.version)):
        if value is not None and name in columns:
            query = query.where(columns[name] == value)
    return query


def _causes(connection: Connection, wanted: Wanted) -> list[Cause]:
    """Returns the causes with most failures; they are not counted by queue or version."""
    rows = _rows(CAUSES, wanted).subquery().c
    here = func.coalesce(func.sum(rows.failed).filter(rows.at >= wanted.begins), 0)
    before = func.coalesce(func.sum(rows.failed).filter(rows.at < wanted.begins), 0)
    query = select(rows.cause, rows.type, func.max(rows.error), here, before).group_by(rows.type, rows.cause)
    query = query.having(here > 0).order_by(here.desc(), rows.cause).limit(MOST_NAMED)
    found = connection.execute(query)
    return [Cause(key, of, error, int(failed), int(less)) for key, of, error, failed, less in found]


def _busiest(groups: _Sums, place: int) -> dict[str, Totals]:
    """Returns the sums by one part of the names, those with most failures first."""
    sums = _Sums()
    for names, values in groups.items():
        sums.add(names[place], values)
    found = {name: sums.total([name]) for name in sums}
    ordered = sorted(found.items(), key=lambda group: (-group[1].counts["failed"], -group[1].ended, group[0]))
    return dict(ordered[:MOST_NAMED])
