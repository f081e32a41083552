"""Workers: running tasks and totals of each; drain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Blueprint, abort, url_for

from taskqueue.dashboard.auth.security import needs
from taskqueue.dashboard.auth.users import Role
from taskqueue.dashboard.context import changed, context, show

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

blueprint = Blueprint("workers", __name__)


@blueprint.get("/workers")
def workers() -> str:
    return show("workers.html", workers_key=context.stores.workers.keys.WORKERS)


@blueprint.post("/workers/<name>/drain")
@needs(Role.OPERATOR)
def drain(name: str) -> Response:
    if not context.stores.workers.drain(name):
        abort(400, f"there is no live worker {name}")
    message = f"Worker {name} is draining: it finishes its running tasks, then ends."
    return changed("drained worker", name, to=url_for(".workers"), message=message)
