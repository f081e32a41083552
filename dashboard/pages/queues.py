"""Queues: waiting tasks and their ages; pause and resume."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Blueprint, flash, redirect, render_template, request, url_for

from dashboard.auth.security import needs, person
from dashboard.auth.users import Role

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

    from dashboard.app import PageContext


def page(context: PageContext) -> Blueprint:
    """`/queues`"""
    blueprint = Blueprint("queues", __name__)

    @blueprint.get("/queues")
    def queues() -> str:
        return render_template("queues.html", now=context.queries.look())

    @blueprint.post("/queues/<name>/pause")
    @needs(Role.OPERATOR)
    def pause(name: str) -> Response:
        context.actions.pause(person(), name, request.form.get("reason", "").strip()[:500])
        flash(f"Queue {name} is paused: workers take no more tasks from it; running tasks continue.")
        return redirect(url_for("queues.queues"))

    @blueprint.post("/queues/<name>/resume")
    @needs(Role.OPERATOR)
    def resume(name: str) -> Response:
        context.actions.resume(person(), name)
        flash(f"Queue {name} is resumed.")
        return redirect(url_for("queues.queues"))

    return blueprint
