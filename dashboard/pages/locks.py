"""The housekeepers' locks: holders, the leader, and releasing a lock in an emergency."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Blueprint, abort, request, url_for

from firmq.dashboard.auth.security import needs, person
from firmq.dashboard.auth.users import Role
from firmq.dashboard.context import context, recorded, show
from firmq.shared.stores.locks import LEADER

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

blueprint = Blueprint("locks", __name__)


@blueprint.get("/locks")
def locks() -> str:
    found = context.queries.locks()
    return show("locks.html", locks=found, leader=next((lock for lock in found if lock.name == LEADER), None))


@blueprint.post("/locks/<name>/unlock")
@needs(Role.ADMIN)
def unlock(name: str) -> Response:
    token = request.form.get("token", "")
    if not token:
        abort(400, f"lock {name} is free")
    # The script adds the audit record in the same step.
    whom = context.stores.locks.force(name, token, person().name, _reason())
    return recorded(url_for(".locks"), f"Lock {name} was released; its holder was {whom}.")


@blueprint.post("/locks/step-down")
@needs(Role.ADMIN)
def step_down() -> Response:
    whom = context.stores.locks.step_down(person().name, _reason())
    return recorded(url_for(".locks"), f"{whom} is no longer the leader; another instance takes over.")


def _reason() -> str:
    reason = request.form.get("reason", "").strip()
    if not reason:
        abort(400, "a reason is required: the audit record keeps it")
    return reason[:500]
