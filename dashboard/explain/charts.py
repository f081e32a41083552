"""Charts of statistics, laid out on the server: columns that lead to their tasks, and lines of percentiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from firmq.shared.stores.deploys import Deploy

WIDTH, HEIGHT = 720, 150
"""Size of the drawing area; the page scales it."""
BURST = 4
"""How many times higher than nine tenths of the others a column may be before it is cut off."""
LABELS = 6
MARKS = 20
"""Deploys that a chart shows, the latest ones."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a column, with the series that it belongs to."""

    tone: str
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Column:
    """One step of the range. `is_cut` marks one that is higher than the chart."""

    at: datetime
    x: float
    width: float
    segments: Sequence[Segment]
    values: Sequence[int]
    is_cut: bool


@dataclass(frozen=True, slots=True)
class Line:
    """A series as an SVG path."""

    tone: str
    path: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A deploy in a chart: its place, also in percent of the width, the version, and when it was first seen."""

    x: float
    place: float
    version: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart: columns or lines, the value at its top, and the places of some instants below it."""

    top: float
    columns: Sequence[Column]
    lines: Sequence[Line]
    labels: Sequence[tuple[float, datetime]]


def columns(
    starts: Sequence[int], tones: Sequence[str], values: Sequence[Sequence[int]], before: Sequence[int]
) -> Chart:
    """Returns stacked columns, a value for each tone, with the sums of the range before as a line."""
    top = top_of([sum(each) for each in values], before)
    step = WIDTH / max(1, len(starts))
    made = [
        Column(
            at=_instant(start),
            x=round(at * step, 1),
            width=round(step * 0.85, 1),
            segments=_stack(tones, each, top),
            values=each,
            is_cut=sum(each) > top,
        )
        for at, (start, each) in enumerate(zip(starts, values, strict=True))
    ]
    line = Line("before", _path(before, top, step))
    return Chart(top=top, columns=made, lines=[line], labels=_labels(starts))


def lines(starts: Sequence[int], series: dict[str, Sequence[float | None]]) -> Chart:
    """Returns a line for each series, with gaps where there is no value."""
    top = top_of(*([value for value in values if value is not None] for values in series.values()))
    step = WIDTH / max(1, len(starts))
    return Chart(
        top=top,
        columns=(),
        lines=[Line(tone, _path(values, top, step)) for tone, values in series.items()],
        labels=_labels(starts),
    )


def top_of(*series: Sequence[float]) -> float:
    """Returns the highest value to show; a burst that would flatten the rest is cut off."""
    values = sorted(value for each in series for value in each if value)
    if not values:
        return 1.0
    usual = values[int(len(values) * 0.9) - 1 if len(values) > 1 else 0]
    return float(min(values[-1], BURST * usual))


def _stack(tones: Sequence[str], values: Sequence[int], top: float) -> list[Segment]:
    made, base = [], 0.0
    for tone, value in zip(tones, values, strict=True):
        height = min(value / top * HEIGHT, HEIGHT - base)
        if value and height > 0:
            height = max(height, min(1.5, HEIGHT - base))
            made.append(Segment(tone, round(HEIGHT - base - height, 1), round(height, 1)))
            base += height
    return made


def _path(values: Sequence[float | None], top: float, step: float) -> str:
    parts, is_drawn = [], False
    for at, value in enumerate(values):
        if value is None:
            is_drawn = False
            continue
        y = HEIGHT - min(value / top, 1.0) * HEIGHT
        x = (at + 0.425) * step
        # A point of its own is drawn as a short line.
        parts.append(f"L{x:.1f},{y:.1f}" if is_drawn else f"M{x:.1f},{y:.1f}h0.1")
        is_drawn = True
    return "".join(parts)


def _labels(starts: Sequence[int]) -> list[tuple[float, datetime]]:
    every = max(1, len(starts) // LABELS)
    shown = [(at, start) for at, start in enumerate(starts) if at % every == 0]
    return [(round(100 * at / len(starts), 2), _instant(start)) for at, start in shown]


def minute_marks(minutes: Iterable[int], deploys: Sequence[Deploy]) -> list[tuple[int, str]]:
    """Returns time (seconds) and version of the last deploys in a chart of these minutes, the last of them first."""
    first = min(minutes, default=0)
    found = [(int(each.first_at.timestamp()) // 60, each.version) for each in deploys[:MARKS]]
    return [(minute * 60, version) for minute, version in found if minute >= first]


def marks(starts: Sequence[int], deploys: Sequence[Deploy]) -> list[Mark]:
    """Returns the last deploys in the range of a chart whose steps begin at `starts`, the first of them first."""
    if len(starts) < 2:
        return []
    step = starts[1] - starts[0]
    length = step * len(starts)
    places = [(each, (each.first_at.timestamp() - starts[0]) / length) for each in deploys]
    shown = [(each, place) for each, place in places if 0 <= place < 1][:MARKS]
    return [
        Mark(round(place * WIDTH, 1), round(100 * place, 2), each.version, each.first_at)
        for each, place in reversed(shown)
    ]


def _instant(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
