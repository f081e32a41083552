"""The housekeepers' locks: holders, the leader, and releasing a lock in an emergency."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Blueprint, flash, redirect, render_template, request, url_for

from dashboard.auth.security import needs, person
from dashboard.auth.users import Role
from shared.stores.locks import LEADER

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

    from dashboard.app import PageContext


def page(context: PageContext) -> Blueprint:
    """`/locks`"""
    blueprint = Blueprint("locks", __name__)

    @blueprint.get("/locks")
    def locks() -> str:
        found = context.queries.all_locks()
        leader = next((lock for lock in found if lock.name == LEADER), None)
        return render_template("locks.html", now=context.queries.look(), locks=found, leader=leader)

    @blueprint.post("/locks/<name>/unlock")
    @needs(Role.ADMIN)
    def unlock(name: str) -> Response:
        whom = context.actions.unlock(person(), name, request.form.get("token", ""), request.form.get("reason", ""))
        flash(f"Lock {name} was released; its holder was {whom}.")
        return redirect(url_for("locks.locks"))

    @blueprint.post("/locks/step-down")
    @needs(Role.ADMIN)
    def step_down() -> Response:
        whom = context.actions.step_down(person(), request.form.get("reason", ""))
        flash(f"{whom} is no longer the leader; another instance takes over.")
        return redirect(url_for("locks.locks"))

    return blueprint
