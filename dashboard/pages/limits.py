"""Limits: usage and waiting tasks of each; set and remove."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Blueprint, flash, redirect, render_template, request, url_for

from dashboard.auth.security import needs, person
from dashboard.auth.users import Role

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

    from dashboard.app import PageContext


def page(context: PageContext) -> Blueprint:
    """`/limits`"""
    blueprint = Blueprint("limits", __name__)

    @blueprint.get("/limits")
    def limits() -> str:
        return render_template("limits.html", now=context.queries.look(), limits=context.queries.limits())

    @blueprint.post("/limits/set")
    @needs(Role.OPERATOR)
    def put() -> Response:
        name = f"{request.form.get('kind', '')}:{request.form.get('name', '').strip()}"
        context.actions.set_limit(person(), name, request.form)
        flash(f"The limit {name} takes effect immediately on every worker; running tasks continue.")
        return redirect(url_for("limits.limits"))

    @blueprint.post("/limits/<string:name>/remove")
    @needs(Role.OPERATOR)
    def remove(name: str) -> Response:
        context.actions.remove_limit(person(), name)
        flash(f"The limit {name} is removed; a limit declared by a handler or the settings applies again.")
        return redirect(url_for("limits.limits"))

    return blueprint
