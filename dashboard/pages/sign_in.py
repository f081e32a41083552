"""Signing in and out."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from flask import Blueprint, g, redirect, render_template, request, session

from dashboard.security import mark, safe_target
from dashboard.users import Doorman

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

    from dashboard.app import Desk

log = logging.getLogger(__name__)


def page(desk: Desk) -> Blueprint:
    """`/sign-in`"""
    blueprint = Blueprint("sign_in", __name__)
    doorman = Doorman()

    @blueprint.get("/sign-in")
    def form() -> str | Response:
        if g.person is not None:
            return redirect(safe_target(request.args.get("next", "/")))
        return render_template("sign_in.html", target=safe_target(request.args.get("next", "/")))

    @blueprint.post("/sign-in")
    def enter() -> Response | tuple[str, int]:
        name, target = request.form.get("name", "")[:200], safe_target(request.form.get("next", "/"))
        if doorman.keeps_out(name):
            problem = "Too many wrong passwords for this name: wait half a minute."
            return render_template("sign_in.html", target=target, name=name, problem=problem), 429
        found = desk.users.check(name, request.form.get("password", ""))
        doorman.heard(name, found is not None)
        if found is None:
            log.warning("a sign-in was refused", extra={"name_given": name, "address": request.remote_addr})
            problem = "This name and password do not belong together."
            return render_template("sign_in.html", target=target, name=name, problem=problem), 401
        session.clear()
        session.update(name=found.name, at=time.time(), mark=mark(desk.users, found.name))
        return redirect(target)

    @blueprint.post("/sign-out")
    def leave() -> Response:
        session.clear()
        return redirect("/sign-in")

    return blueprint
