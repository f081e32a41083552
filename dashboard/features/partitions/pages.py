"""Partitions: the state of each on one page, and the choice of the partition for the other pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from flask import Blueprint, abort, current_app, redirect, render_template, request

from firmq.dashboard.auth.security import safe_target
from firmq.dashboard.features.partitions.choice import NUMBER, id_in, read_choice
from firmq.shared.conditions.conditions import Level, alerts, by_cause

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

    from firmq.dashboard.features.partitions.app import Partitions

blueprint = Blueprint("partitions", __name__, template_folder="templates")


def partitions() -> Partitions:
    """Returns the partitions of this system."""
    return cast("Partitions", current_app.extensions["partitions"])


@blueprint.get("/partitions")
def overview() -> str:
    found = partitions().look()
    troubles = [(each.place, alert) for each in found if each.now for alert in alerts(each.now)]
    troubles.sort(key=lambda each: each[1].level is not Level.DANGER)
    now = next((each.now for each in found if each.number == request.environ[NUMBER]), None)
    return render_template("partitions/overview.html", partitions=found, alerts=by_cause(troubles), now=now)


@blueprint.get("/partitions/<said>")
def choose(said: str) -> Response:
    """Redirects; the dashboard has recorded the choice, so the app that serves this is the chosen one."""
    if read_choice(said, partitions().numbers) is None:
        abort(404, "There is no such partition.")
    to = safe_target(request.args.get("to", "/"))
    return redirect("/" if id_in(to) else to)  # a page that every partition has
