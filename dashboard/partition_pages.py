"""Partitions: the state of each on one page, and the choice of the one that the other pages show."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from flask import Blueprint, abort, current_app, redirect, render_template, request

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

    from taskqueue.dashboard.partitions import Partitions

OF_ID = re.compile(r"/(?:tasks|batches|bulk)/([A-Za-z0-9_-]{1,128})(?:/.*)?")
"""Pages about what only one partition has."""

blueprint = Blueprint("partitions", __name__)


def partitions() -> Partitions:
    """Returns the partitions of this system."""
    return cast("Partitions", current_app.extensions["partitions"])


@blueprint.get("/partitions")
def overview() -> str:
    return render_template("partitions.html", partitions=partitions().look())


@blueprint.get("/partitions/<number>")
def choose(number: str) -> Response:
    """The router has noted the choice: this app is that of the chosen partition."""
    if not number.isdecimal() or int(number) not in partitions().numbers:
        abort(404, "There is no such partition.")
    to = request.args.get("to", "/")
    # Only a page of this dashboard ("//host" and "/\\host" lead elsewhere), which every partition has.
    is_own = to.startswith("/") and to[1:2] not in ("/", "\\")
    return redirect(to if is_own and not OF_ID.fullmatch(to) else "/")
