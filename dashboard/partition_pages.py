"""Partitions: the state of each on one page, and the choice of what the other pages show."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from flask import Blueprint, abort, current_app, redirect, render_template, request

from firmq.dashboard.auth.security import safe_target
from firmq.dashboard.context import context
from firmq.dashboard.merging import one_snapshot
from firmq.dashboard.partition_choice import OF_ID, SHOWN, Shown, read_choice
from firmq.shared.alerts.rules import Level, alerts, by_cause, thresholds_of

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

    from firmq.dashboard.partitions import Partitions

blueprint = Blueprint("partitions", __name__)


def partitions() -> Partitions:
    """Returns the partitions of this system."""
    return cast("Partitions", current_app.extensions["partitions"])


@blueprint.get("/partitions")
def overview() -> str:
    found, shown = partitions().look(), cast("Shown", request.environ[SHOWN])
    well, limits = {each.number: each.now for each in found if each.now}, thresholds_of(context.settings)
    troubles = [(number, alert) for number, now in well.items() for alert in alerts(now, limits)]
    troubles.sort(key=lambda each: each[1].level is not Level.DANGER)
    return render_template(
        "partitions.html",
        partitions=found,
        alerts=by_cause(troubles),
        total=one_snapshot(list(well.values())) if well else None,
        now=one_snapshot(list(well.values())) if well and shown.choice.all else None,
    )


@blueprint.get("/partitions/<said>")
def choose(said: str) -> Response:
    """The router has noted the choice: the app that serves this is the chosen one."""
    choice = read_choice(said, partitions().numbers)
    if choice is None:
        abort(404, "There is no such partition.")
    to = safe_target(request.args.get("to", "/"))
    return redirect(to if choice.all or not OF_ID.fullmatch(to) else "/")  # a page that every partition has
