"""Sign-in and sign-out."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from flask import Blueprint, g, redirect, render_template, request, session
from werkzeug.exceptions import ServiceUnavailable, TooManyRequests

from firmq.dashboard.auth.security import safe_target
from firmq.dashboard.context import context

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

log = logging.getLogger(__name__)

blueprint = Blueprint("sign_in", __name__)


@blueprint.get("/sign-in")
def form() -> str | Response:
    target = safe_target(request.args.get("next", "/"))
    return redirect(target) if g.person else page(target)


@blueprint.post("/sign-in")
def enter() -> Response | tuple[str, int, dict[str, str]]:
    name, target = request.form.get("name", "")[:200], safe_target(request.form.get("next", "/"))
    last = context.sessions.last_person()
    try:
        is_known = last is not None and last.name == name
        found = context.login_throttle.check(name, request.form.get("password", ""), is_known)
    except (ServiceUnavailable, TooManyRequests) as error:
        return _again(target, name, error.description or ""), error.code, {"Retry-After": str(error.retry_after)}
    if found is None:
        log.warning("sign-in failed", extra={"name_given": name, "address": request.remote_addr})
        return _again(target, name, "Wrong name or password."), 401, {}
    context.sessions.begin(found)
    return redirect(target)


@blueprint.post("/sign-out")
def leave() -> Response:
    external = "role" in session
    context.sessions.end()
    return redirect("/sign-in?signed-out" if external else "/sign-in")


def _again(target: str, name: str, problem: str) -> str:
    return page(target, name=name, problem=problem)


def page(target: str, **about: str) -> str:
    """Returns the page of the sign-in, which leads to `target`."""
    return render_template(
        "sign_in.html",
        target=target,
        has_passwords=bool(context.users.hashes),
        has_provider=bool(context.users.provider_mark),
        signed_out="signed-out" in request.args,
        **about,
    )
