"""A Flask app whose handlers show the app that they run in: FLASK_APP=tests.support.flask_project."""

from __future__ import annotations

import asyncio
import logging
import threading

from flask import Flask, current_app, g

from firmq import current_task, task
from firmq.flask import Firmq

log = logging.getLogger(__name__)
queue = Firmq()


def create_app(sender: str = "Shop") -> Flask:
    """The factory, with which every app context is seen to end."""
    app = Flask(__name__)
    app.config["SENDER"] = sender
    queue.init_app(app)

    @app.teardown_appcontext
    def leave(error: BaseException | None) -> None:
        log.info("context of %s ends with %r", g.get("order"), error)

    return app


def create_bare_app() -> Flask:
    """A factory that forgets the extension."""
    return Flask("bare")


def _mark(order: int) -> None:
    assert "order" not in g, "each attempt has a context of its own"
    g.order = order


@task("flask-serial", max_retries=0)
def serial(order: int) -> list[str]:
    """Fails for orders below zero."""
    _mark(order)
    if order < 0:
        raise ValueError(f"no order {order}")
    return [current_app.config["SENDER"], threading.current_thread().name, f"{g.order} {current_task().type}"]


@task("flask-threads", threads=True)
def threads(order: int) -> list[str]:
    """Runs in a thread."""
    _mark(order)
    return [current_app.config["SENDER"], threading.current_thread().name, f"{g.order} {current_task().type}"]


@task("flask-async")
async def coroutine(order: int) -> list[str]:
    """Waits, so that others run meanwhile."""
    _mark(order)
    await asyncio.sleep(0.05)
    return [current_app.config["SENDER"], threading.current_thread().name, f"{g.order} {current_task().type}"]
