"""The results as tables (terminal, results.md) and as data (results.json)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass

from tests.labs.bench.summary import Card, Results, Spread

Format = Callable[[float], str]


def whole(value: float) -> str:
    return f"{value:,.0f}"


def short(value: float) -> str:
    return f"{value:,.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def milliseconds(value: float) -> str:
    return short(value * 1000) if value < 1 else whole(value * 1000)


def megabytes(value: float) -> str:
    return whole(value / 2**20)


def percent(value: float) -> str:
    return f"{value:.1%}"


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    workload: str
    metric: str
    format: Format
    with_spread: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: tuple[Column, ...]


TABLES = (
    Table(
        "Empty tasks, results kept",
        (
            Column("tasks/s", "drain", "tasks_per_second", whole, with_spread=True),
            Column("processor s per 1,000", "drain", "cpu_per_1000", short, with_spread=True),
            Column("of it Redis", "drain", "redis_cpu_per_1000", short),
            Column("commands a task", "drain", "commands_per_task", short),
            Column("reads a task", "drain", "reads_per_task", short),
            Column("enqueued/s", "drain", "enqueued_per_second", whole),
            Column("ran twice", "drain", "repeated", whole),
            Column("others' cores", "drain", "other_cores_busy", short),
        ),
    ),
    Table(
        "Empty tasks, results not kept (Firmq always keeps the record)",
        (
            Column("tasks/s", "drain-discarded", "tasks_per_second", whole, with_spread=True),
            Column("processor s per 1,000", "drain-discarded", "cpu_per_1000", short, with_spread=True),
            Column("of it Redis", "drain-discarded", "redis_cpu_per_1000", short),
            Column("commands a task", "drain-discarded", "commands_per_task", short),
            Column("reads a task", "drain-discarded", "reads_per_task", short),
            Column("others' cores", "drain-discarded", "other_cores_busy", short),
        ),
    ),
    Table(
        "Wait from submission to start, idle workers (ms)",
        (
            Column("p50", "idle", "p50", milliseconds, with_spread=True),
            Column("p99", "idle", "p99", milliseconds, with_spread=True),
            Column("max", "idle", "max", milliseconds),
            Column("submitter late", "idle", "submitter_late", milliseconds),
        ),
    ),
    Table(
        "Wait of 1 ms tasks while one task of 2 s runs at a time (ms)",
        (
            Column("p50", "mixed", "p50", milliseconds, with_spread=True),
            Column("p99", "mixed", "p99", milliseconds, with_spread=True),
            Column("max", "mixed", "max", milliseconds),
            Column("waited over 200 ms", "mixed", "behind_slow", percent),
        ),
    ),
    Table(
        "Tasks of 10 ms of work",
        (
            Column("seconds", "busy", "seconds", short, with_spread=True),
            Column("ideal", "busy", "ideal_seconds", short),
            Column("times ideal", "busy", "times_ideal", short),
        ),
    ),
    Table(
        "Tasks that wait 0.1 s, 1,000 slots, results kept",
        (
            Column("tasks/s", "waiting", "tasks_per_second", whole, with_spread=True),
            Column("most at once", "waiting", "at_once", whole),
            Column("processor s per 1,000", "waiting", "cpu_per_1000", short, with_spread=True),
            Column("of it Redis", "waiting", "redis_cpu_per_1000", short),
            Column("peak PSS, MB", "waiting", "peak_pss", megabytes, with_spread=True),
            Column("ran twice", "waiting", "repeated", whole),
            Column("others' cores", "waiting", "other_cores_busy", short),
        ),
    ),
    Table(
        "Wait of empty tasks while 500 waiting ones of 1 s begin each second (ms)",
        (
            Column("p50", "occupied", "p50", milliseconds, with_spread=True),
            Column("p99", "occupied", "p99", milliseconds, with_spread=True),
            Column("max", "occupied", "max", milliseconds),
            Column("submitter late", "occupied", "submitter_late", milliseconds),
        ),
    ),
    Table(
        "Single submissions by one process, each until Redis has the task (ms)",
        (
            Column("tasks/s", "submit", "submitted_per_second", whole, with_spread=True),
            Column("p50", "submit", "p50", milliseconds, with_spread=True),
            Column("p99", "submit", "p99", milliseconds, with_spread=True),
            Column("processor s of Redis per 1,000", "submit", "redis_cpu_per_1000", short),
        ),
    ),
    Table(
        "Memory",
        (
            Column("workers PSS, MB", "drain", "pss", megabytes),
            Column("workers RSS, MB", "drain", "rss", megabytes),
            Column("Redis bytes a waiting task", "memory", "bytes_waiting", whole),
            Column("Redis bytes a completed task", "memory", "bytes_completed", whole),
        ),
    ),
)


class Notes:
    """Reasons, numbered as they come up, so that a table stays readable."""

    def __init__(self) -> None:
        self._reasons: list[str] = []

    def mark(self, reason: str) -> str:
        if reason not in self._reasons:
            self._reasons.append(reason)
        return f"[{self._reasons.index(reason) + 1}]"

    def lines(self) -> list[str]:
        return [f"[{number}] {reason}" for number, reason in enumerate(self._reasons, 1)]


def markdown(results: Results) -> str:
    """The whole of results.md, which is also what the terminal shows."""
    notes = Notes()
    parts = [heading(results)]
    for table in TABLES:
        shown = [column for column in table.columns if column.workload in results.workloads()]
        if shown:
            parts.append(f"## {table.title}\n\n{grid(rows(results, shown, notes))}")
    parts.append(f"## Versions\n\n{grid(versions(results))}")
    if notes.lines():
        parts.append("## What failed\n\n" + "\n\n".join(notes.lines()))
    return "\n\n".join(parts) + "\n"


def heading(results: Results) -> str:
    machine, options = results.machine, results.options
    where = f"{machine['processor']}, {machine['cores']} cores; Python {machine['python']}; {machine['redis']}"
    how = f"append-only file: {options['append_only']}; {options['processes']} worker processes"
    size = f"{options['tasks']:,} tasks; {options['rounds']} interleaved rounds: median (lowest–highest)"
    return f"# Benchmark\n\n{machine['date']}. {where}; {how}; {size}.{disturbance(results)}"


def disturbance(results: Results) -> str:
    """Said on the page itself, as the numbers of a busy machine mean little."""
    others = results.highest("other_cores_busy")
    if others is None:
        return ""
    return f" Other programs kept {others.median:.2f} cores busy meanwhile (highest {others.high:.2f})."


def rows(results: Results, columns: list[Column], notes: Notes) -> list[list[str]]:
    head = ["system", *(column.title for column in columns)]
    cards = results.ranked(column.workload for column in columns)
    body = [[card.title, *(cell(results, card, column, notes) for column in columns)] for card in cards]
    return [head, *body]


def cell(results: Results, card: Card, column: Column, notes: Notes) -> str:
    spread = results.spread(card.name, column.workload, column.metric)
    reason = card.failed or results.failure(card.name, column.workload)
    mark = f" {notes.mark(f'{card.title}, {column.workload}: {reason}')}" if reason else ""
    if spread is None:
        return f"failed{mark}" if reason else "–"
    return number(spread, column) + mark


def number(spread: Spread, column: Column) -> str:
    text = column.format(spread.median)
    if column.with_spread and spread.rounds > 1:
        text += f" ({column.format(spread.low)}–{column.format(spread.high)})"
    return text


def versions(results: Results) -> list[list[str]]:
    listed = [
        [card.title, ", ".join(f"{name} {version}" for name, version in card.versions.items())]
        for card in results.ranked(results.workloads())
    ]
    return [["system", "versions"], *listed]


def grid(table: list[list[str]]) -> str:
    """A Markdown table with its columns aligned, to be read on a terminal as well."""
    widths = [max(len(row[n]) for row in table) for n in range(len(table[0]))]
    lines = [
        "| " + " | ".join(pad(text, width, n) for n, (text, width) in enumerate(zip(row, widths, strict=True))) + " |"
        for row in table
    ]
    rule = "|" + "|".join("-" * (width + 1) + ("-" if n == 0 else ":") for n, width in enumerate(widths)) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def pad(text: str, width: int, column: int) -> str:
    return text.ljust(width) if column == 0 else text.rjust(width)


def as_json(results: Results) -> str:
    return json.dumps(dataclasses.asdict(results), indent=1, ensure_ascii=False) + "\n"
