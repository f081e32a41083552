"""Signing in and out."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from flask import Blueprint, g, redirect, render_template, request, session

from dashboard.auth.login_throttle import Doorman, KeptOut, is_known, remember
from dashboard.auth.security import mark, safe_target

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

    from dashboard.app import Desk

log = logging.getLogger(__name__)


def page(desk: Desk) -> Blueprint:
    """`/sign-in`"""
    blueprint = Blueprint("sign_in", __name__)
    doorman = Doorman(desk.users)

    @blueprint.get("/sign-in")
    def form() -> str | Response:
        if g.person is not None:
            return redirect(safe_target(request.args.get("next", "/")))
        return render_template("sign_in.html", target=safe_target(request.args.get("next", "/")))

    @blueprint.post("/sign-in")
    def enter() -> Response | tuple[str, int, dict[str, str]]:
        name, target = request.form.get("name", "")[:200], safe_target(request.form.get("next", "/"))
        try:
            found = doorman.check(name, request.form.get("password", ""), is_known(desk.users, name))
        except KeptOut as error:
            return _again(target, name, str(error)), error.status, {"Retry-After": str(error.wait)}
        if found is None:
            log.warning("a sign-in was refused", extra={"name_given": name, "address": request.remote_addr})
            return _again(target, name, "This name and password do not belong together."), 401, {}
        _end(desk)
        session.update(id=desk.sessions.begin(found.name), name=found.name, mark=mark(desk.users, found.name))
        answer = redirect(target)
        remember(answer, desk.users, found.name)
        return answer

    @blueprint.post("/sign-out")
    def leave() -> Response:
        _end(desk)
        return redirect("/sign-in")

    return blueprint


def _end(desk: Desk) -> None:
    """Ends the session of this browser, if it has one."""
    if "id" in session:
        desk.sessions.end(str(session["id"]))
    session.clear()


def _again(target: str, name: str, problem: str) -> str:
    return render_template("sign_in.html", target=target, name=name, problem=problem)
