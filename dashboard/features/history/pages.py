"""Statistics of ended tasks over a range, of all types or of one; each column leads to the tasks that ended in it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from flask import Blueprint, abort, redirect, request, url_for

from firmq.dashboard.context import context, opened, show
from firmq.dashboard.explain import charts
from firmq.shared.domain.histogram import Histogram, percentiles
from firmq.shared.errors import HistoryUnavailable

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

    from firmq.shared.features.history.analytics import Report, Wanted
    from firmq.shared.features.history.reading import History
    from firmq.shared.features.history.rows import Totals

blueprint = Blueprint("analytics", __name__, template_folder="templates")
TONES = ("bad", "calm", "good")
SLOWEST = 5


@blueprint.get("/analytics")
def analytics() -> str | Response:
    if task_type := request.args.get("type", "").strip()[:200]:
        query: dict[str, Any] = {
            name: request.args[name] for name in ("range", "until", "queue", "version") if name in request.args
        }
        return redirect(url_for("types.type_page", name=task_type, **query))
    history = opened("history")
    return show("history/analytics.html", **(_report(history, None) if history else {}))


def statistics(task_type: str | None) -> dict[str, Any]:
    """Returns the values of the report; none where there is no history or its database does not answer."""
    history = opened("history")
    try:
        return _report(history, task_type) if history else {}
    except HistoryUnavailable:
        return {}


def _read_wanted(task_type: str | None) -> Wanted:
    """Returns the range that the query of the page names. Ends the request with 400 if it is invalid."""
    from firmq.shared.features.history.analytics import RANGES, Wanted

    asked = {name: request.args.get(name, "").strip()[:200] for name in ("range", "until", "queue", "version")}
    name = asked["range"] or "24h"
    if name not in RANGES or not re.fullmatch(r"\d{0,12}", asked["until"]):
        abort(400, f"invalid range: use one of {', '.join(RANGES)}")
    # Pages of the same range share an answer: the last step is read again every few seconds.
    until = int(asked["until"] or time.time() // 5 * 5)
    return Wanted(
        range=name, until=until, type=task_type, queue=asked["queue"] or None, version=asked["version"] or None
    )


def _report(history: History, task_type: str | None) -> dict[str, Any]:
    """Returns the report and its charts, and the functions that make links from them. Raises HistoryUnavailable."""
    from firmq.shared.features.history.analytics import read_report  # SQLAlchemy is slow to import

    wanted = _read_wanted(task_type)
    cache = context.queries.cache
    report = cache.get(("report", wanted), lambda: read_report(history, wanted))
    starts = [report.start_of(at) for at in range(len(report.points))]
    given = {name: request.args[name] for name in ("queue", "version", "until") if request.args.get(name)}
    here = {**(request.view_args or {}), **given, "range": wanted.range}
    before = [sum(_ends(each)) for each in report.points_before]
    return {
        "report": report,
        "wanted": wanted,
        "given": given,
        "ended": charts.columns(starts, TONES, list(map(_ends, report.points)), before),
        "marks": charts.marks(starts, context.queries.snapshot().deploys),
        "waits": _lines(starts, (each.wait for each in report.points)),
        "runs": _lines(starts, (each.run for each in report.points)),
        "percentiles": percentiles,
        "slowest": cache.get(("slowest", task_type), lambda: history.slowest(task_type, SLOWEST)) if task_type else [],
        "here": lambda **changes: url_for(request.endpoint or "", **{**here, **changes}),
        "tasks_at": lambda at, status: _tasks(report, wanted, at, status),
    }


def _ends(point: Totals) -> tuple[int, int, int]:
    """Returns how many tasks ended in the ways of `TONES`."""
    counts = point.counts
    return counts["failed"], counts["cancelled"] + counts["expired"], counts["completed"]


def _lines(starts: Sequence[int], points: Iterable[Histogram]) -> charts.Chart:
    series = zip(*map(percentiles, points), strict=True)
    return charts.lines(starts, dict(zip(("p50", "p95", "p99"), series, strict=True)))


def _tasks(report: Report, wanted: Wanted, at: int, status: str) -> str:
    """Returns the path of the list of tasks that ended in a step in this way."""
    since, until = (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(report.start_of(each))) for each in (at, at + 1))
    path = url_for("tasks.tasks", status=status, since=since, until=until, type=wanted.type, queue=wanted.queue)
    return path.replace("%3A", ":")  # a page has a hundred of them
