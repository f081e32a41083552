"""What a run amounts to, and whether it is good enough."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import chain

from tests.labs.load.samples import Row
from tests.labs.load.slopes import growth, percentile, thirds
from tests.labs.load.steady import Outcome

MIB = 1 << 20
MEMORY = 2 * MIB
"""By which a process may grow, however long it goes on: Python takes it by the MiB, and one comes and goes."""
THREADS = 2 * MIB
"""On top for the gateway: its threads keep some hundred kB each from their first busy moment on, however late."""
SHARE = 0.05
"""By which what Redis holds may differ on top: how much there is to be removed at a moment is a matter of chance."""
FEW = 16
"""Handles, threads and connections more: pools grow to the number that chance once needs, a few more than clients."""
KEYS = 1000
SLOWER, MILLISECONDS = 1.5, 1.0
"""A median of the last third may be so many times that of the first, and so much more."""


@dataclass(frozen=True, slots=True)
class Level:
    """One row of samples."""

    what: str
    whose: str
    typical: float
    growth: float
    bound: float

    @property
    def flat(self) -> bool:
        return self.growth <= self.bound


@dataclass(frozen=True, slots=True)
class Latency:
    """One kind of waiting in each third of the run, in milliseconds."""

    what: str
    medians: list[float]
    high: list[float]
    """The 99th percentiles."""

    @property
    def flat(self) -> bool:
        return self.medians[-1] <= SLOWER * self.medians[0] + MILLISECONDS


@dataclass
class Figures:
    """One run, to be printed and kept."""

    minutes: float
    tasks_per_second: float
    counts: dict[str, dict[str, int]]
    unanswered: int
    stored: int
    levels: list[Level]
    latencies: list[Latency]
    complaints: list[str]
    capacity: float = 0.0


def figures_of(outcome: Outcome, *, hold_latencies: bool) -> Figures:
    levels = [_level(outcome, row) for row in sorted(outcome.samples.rows)]
    latencies = [_answers(outcome), _starts(outcome)]
    grown = (
        f"{each.what} of {each.whose} grew by {each.growth:,.0f}, over {each.bound:,.0f}"
        for each in levels
        if not each.flat
    )
    slower = (f"{each.what}: medians of the thirds are {each.medians} ms" for each in latencies if not each.flat)
    return Figures(
        minutes=outcome.plan.seconds / 60,
        tasks_per_second=outcome.plan.tasks_per_second,
        counts=outcome.counts,
        unanswered=sum(ledger.unanswered for ledger in outcome.ledgers),
        stored=outcome.stored,
        levels=levels,
        latencies=latencies,
        complaints=[*outcome.complaints, *grown, *(slower if hold_latencies else ())],
    )


def _level(outcome: Outcome, row: Row) -> Level:
    values = outcome.samples.rows[row]
    typical = statistics.median(values)
    what, whose = row
    return Level(what, whose, typical, growth(outcome.samples.times, values), _bound(what, whose, typical))


def _bound(what: str, whose: str, typical: float) -> float:
    if what in ("memory", "used memory"):
        return MEMORY + (SHARE * typical if whose == "redis" else THREADS if whose.startswith("gateway") else 0)
    return KEYS + SHARE * typical if what == "keys" else FEW


def _answers(outcome: Outcome) -> Latency:
    moments = chain.from_iterable(ledger.moments for ledger in outcome.ledgers)
    times = chain.from_iterable(ledger.times for ledger in outcome.ledgers)
    return _latency("answer", outcome, list(zip(moments, times, strict=True)))


def _starts(outcome: Outcome) -> Latency:
    first = (start for start in outcome.begun if start.attempt == 1)
    return _latency("start", outcome, [(start.sent, start.began - start.sent) for start in first])


def _latency(what: str, outcome: Outcome, rows: list[tuple[float, float]]) -> Latency:
    measured = [(at, seconds * 1000) for at, seconds in rows if at >= outcome.measured_from]
    parts = thirds(*zip(*measured, strict=True))
    return Latency(
        what, [round(percentile(part, 0.5), 2) for part in parts], [round(percentile(part, 0.99), 2) for part in parts]
    )


def shown(figures: Figures) -> str:
    """For people."""
    told = figures.counts["clients"]
    possible = f", of {figures.capacity:,.0f} that were possible" if figures.capacity else ""
    ends = ", ".join(f"{told[end]:,} {end}" for end in ("accepted", "completed", "failed", "retried"))
    lines = [
        f"{figures.minutes:g} minutes at {figures.tasks_per_second:,.0f} tasks a second{possible}",
        f"{ends}; {figures.unanswered} never answered; {figures.stored:,} read back",
        "",
        "| of | memory, MiB | growth | handles | growth | threads | growth |",
        "|---|---:|---:|---:|---:|---:|---:|",
        *_process_rows(figures),
        "",
        "| Redis | | growth |",
        "|---|---:|---:|",
        *(f"| {each.what} | {_size(each, each.typical)} | {_size(each, each.growth)} |" for each in _of_redis(figures)),
        "",
        "| from sending to | first third p50 / p99, ms | second | last |",
        "|---|---:|---:|---:|",
        *(_latency_row(each) for each in figures.latencies),
        "",
        *(f"WRONG: {each}" for each in figures.complaints),
    ]
    return "\n".join(lines)


def _process_rows(figures: Figures) -> Iterator[str]:
    by_row = {(each.what, each.whose): each for each in figures.levels}
    for whose in [each.whose for each in figures.levels if each.what == "memory"]:
        cells = [by_row[what, whose] for what in ("memory", "handles", "threads")]
        yield (
            f"| {whose} | "
            + " | ".join(f"{_size(each, each.typical)} | {_size(each, each.growth)}" for each in cells)
            + " |"
        )


def _of_redis(figures: Figures) -> list[Level]:
    return [each for each in figures.levels if each.what in ("used memory", "keys", "connections")]


def _size(level: Level, value: float) -> str:
    return f"{value / MIB:.2f}" if "memory" in level.what else f"{value:,.0f}"


def _latency_row(latency: Latency) -> str:
    cells = (f"{median:.1f} / {high:.1f}" for median, high in zip(latency.medians, latency.high, strict=True))
    return f"| {latency.what} | {' | '.join(cells)} |"


def as_json(figures: Figures) -> dict[str, object]:
    """What is kept of a run."""
    return asdict(figures)
