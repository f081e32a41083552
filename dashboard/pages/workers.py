"""Workers: running tasks and totals of each; drain."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from flask import Blueprint, abort, url_for

from firmq.dashboard.auth.security import needs
from firmq.dashboard.auth.users import Role
from firmq.dashboard.context import changed, context, show
from firmq.dashboard.explain.charts import minute_marks
from firmq.dashboard.overview import Snapshot

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

blueprint = Blueprint("workers", __name__)


@blueprint.get("/workers")
def workers() -> str:
    now = context.queries.snapshot()
    series = {**_executors(now), "deploys": minute_marks(now.minutes, now.deploys)}
    return show("workers.html", workers_key=context.stores.workers.keys.WORKERS, charts=json.dumps(series))


def _executors(now: Snapshot) -> dict[str, list[float]]:
    """Returns executors and busy ones in each of the last sixty minutes, as series for the chart."""
    series: dict[str, list[float]] = {"minute": [], "executors": [], "busy": []}
    for minute, counts in now.minutes.items():
        passed = min(60.0, max(1.0, now.at.timestamp() - minute * 60))
        series["minute"].append(minute * 60)
        for name, total in (("executors", "slot_ms"), ("busy", "busy_ms")):
            series[name].append(round(counts.get(total, 0) / 1000 / passed, 2))
    return series


@blueprint.post("/workers/<name>/drain")
@needs(Role.OPERATOR)
def drain(name: str) -> Response:
    if not context.stores.workers.drain(name):
        abort(400, f"there is no live worker {name}")
    message = f"Worker {name} is draining: it finishes its running tasks, then ends."
    return changed("drained worker", name, to=url_for(".workers"), message=message)
