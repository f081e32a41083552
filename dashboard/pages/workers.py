"""Workers: running tasks and totals of each; drain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Blueprint, flash, redirect, render_template, url_for

from dashboard.auth.security import needs, person
from dashboard.auth.users import Role

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

    from dashboard.app import PageContext


def page(context: PageContext) -> Blueprint:
    """`/workers`"""
    blueprint = Blueprint("workers", __name__)

    @blueprint.get("/workers")
    def workers() -> str:
        return render_template("workers.html", now=context.queries.look())

    @blueprint.post("/workers/<name>/drain")
    @needs(Role.OPERATOR)
    def drain(name: str) -> Response:
        context.actions.drain(person(), name)
        flash(f"Worker {name} is draining: it finishes its running tasks, then ends.")
        return redirect(url_for("workers.workers"))

    return blueprint
