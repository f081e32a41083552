"""The values with which templates/report.html shows the statistics of a range."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flask import abort, request, url_for

from firmq.dashboard.context import context
from firmq.dashboard.explain import charts
from firmq.shared.domain.histogram import Histogram, percentiles
from firmq.shared.domain.task import TaskState, TaskSummary
from firmq.shared.stores.tasks import Filter

if TYPE_CHECKING:
    from firmq.shared.history.analytics import Report, Wanted
    from firmq.shared.history.rows import Totals

TONES = ("bad", "calm", "good")
LAST_FAILURES = 5


def read_wanted(task_type: str | None) -> Wanted:
    """Returns the range that the query of the page names. Ends the request with 400 if it is invalid."""
    from firmq.shared.history.analytics import RANGES, Wanted

    asked = {name: request.args.get(name, "").strip()[:200] for name in ("range", "until", "queue", "version")}
    name = asked["range"] or "24h"
    if name not in RANGES or not re.fullmatch(r"\d{0,12}", asked["until"]):
        abort(400, f"invalid range: use one of {', '.join(RANGES)}")
    # Pages of the same range share an answer: the last step is read anew every few seconds.
    until = int(asked["until"] or time.time() // 5 * 5)
    return Wanted(
        range=name, until=until, type=task_type, queue=asked["queue"] or None, version=asked["version"] or None
    )


def report_values(wanted: Wanted) -> dict[str, Any]:
    """Returns the report and its charts, and the functions that make links from them. Raises HistoryUnavailable."""
    report = context.queries.report(wanted)
    return {
        "report": report,
        "wanted": wanted,
        "given": _given(wanted),
        "ended": _ended(report),
        "marks": charts.marks(_starts(report), context.queries.snapshot().deploys),
        "waits": _durations(report, [each.wait for each in report.points]),
        "runs": _durations(report, [each.run for each in report.points]),
        "percentiles": percentiles,
        "here": lambda **changes: _here({**_given(wanted), **changes}),
        "tasks_at": lambda at, status: _tasks(report, wanted, at, status),
    }


def last_failures(task_type: str) -> Sequence[TaskSummary]:
    """Returns the tasks of a type that failed last, wherever they are."""
    return context.queries.tasks(Filter(state=TaskState.FAILED, type=task_type), None).items[:LAST_FAILURES]


def _given(wanted: Wanted) -> dict[str, str]:
    """Returns the query of this page."""
    named = {
        "queue": wanted.queue,
        "version": wanted.version,
        "range": wanted.range,
        "until": request.args.get("until"),
    }
    return {name: value for name, value in named.items() if value}


def _here(query: dict[str, str | None]) -> str:
    """Returns the path of this page with another query."""
    return url_for(request.endpoint or "", **{**(request.view_args or {}), **query})


def _ended(report: Report) -> charts.Chart:
    values = list(map(_ends, report.points))
    return charts.columns(_starts(report), TONES, values, [sum(_ends(each)) for each in report.points_before])


def _ends(point: Totals) -> tuple[int, int, int]:
    """Returns how many tasks ended in the ways of `TONES`."""
    counts = point.counts
    return counts["failed"], counts["cancelled"] + counts["expired"], counts["completed"]


def _durations(report: Report, points: Sequence[Histogram]) -> charts.Chart:
    series = zip(*map(percentiles, points), strict=True)
    return charts.lines(_starts(report), dict(zip(("p50", "p95", "p99"), series, strict=True)))


def _starts(report: Report) -> list[int]:
    return [report.start_of(at) for at in range(len(report.points))]


def _tasks(report: Report, wanted: Wanted, at: int, status: str) -> str:
    """Returns the path of the list of tasks that ended in a step in this way."""
    since, until = (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(report.start_of(each))) for each in (at, at + 1))
    path = url_for("tasks.tasks", status=status, since=since, until=until, type=wanted.type, queue=wanted.queue)
    return path.replace("%3A", ":")  # a page has a hundred of them
