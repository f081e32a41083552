"""Sign-in and sign-out."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from flask import Blueprint, g, redirect, render_template, request, session

from dashboard.auth.login_throttle import LoginThrottle, LoginThrottled, is_known, remember
from dashboard.auth.security import mark, safe_target

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

    from dashboard.app import PageContext

log = logging.getLogger(__name__)


def page(context: PageContext) -> Blueprint:
    """`/sign-in`"""
    blueprint = Blueprint("sign_in", __name__)
    login_throttle = LoginThrottle(context.users)

    @blueprint.get("/sign-in")
    def form() -> str | Response:
        if g.person is not None:
            return redirect(safe_target(request.args.get("next", "/")))
        return render_template("sign_in.html", target=safe_target(request.args.get("next", "/")))

    @blueprint.post("/sign-in")
    def enter() -> Response | tuple[str, int, dict[str, str]]:
        name, target = request.form.get("name", "")[:200], safe_target(request.form.get("next", "/"))
        try:
            found = login_throttle.check(name, request.form.get("password", ""), is_known(context.users, name))
        except LoginThrottled as error:
            return _again(target, name, str(error)), error.status, {"Retry-After": str(error.wait)}
        if found is None:
            log.warning("sign-in failed", extra={"name_given": name, "address": request.remote_addr})
            return _again(target, name, "Wrong name or password."), 401, {}
        _end(context)
        session.update(id=context.sessions.begin(found.name), name=found.name, mark=mark(context.users, found.name))
        answer = redirect(target)
        remember(answer, context.users, found.name)
        return answer

    @blueprint.post("/sign-out")
    def leave() -> Response:
        _end(context)
        return redirect("/sign-in")

    return blueprint


def _end(context: PageContext) -> None:
    """Ends the session of this browser, if it has one."""
    if "id" in session:
        context.sessions.end(str(session["id"]))
    session.clear()


def _again(target: str, name: str, problem: str) -> str:
    return render_template("sign_in.html", target=target, name=name, problem=problem)
