"""The Flask extension: a client for each app, and an app context for handlers.

from flask import Flask
from firmq.flask import Firmq

queue = Firmq()

def create_app() -> Flask:
    app = Flask(__name__)
    app.config.from_prefixed_env()
    queue.init_app(app)
    return app

A worker loads the app of FLASK_APP by TASK_MODULES=firmq.flask.worker.
"""

from __future__ import annotations

from typing import Any, Unpack, cast

from flask import Flask, current_app, has_app_context
from flask.ctx import AppContext

from firmq.shared.client import Accepted, Client, Options
from firmq.worker.handlers.default_client import use_client
from firmq.worker.handlers.registry import REGISTRY


class Firmq:
    """Gives each app a client, `current_app.extensions["firmq"]`, and its handlers the context of the app.

    The client is one of FIRMQ_URL and FIRMQ_API_KEY of the app's config, else of the environment. `submit` of
    handlers uses the current app's, unless `use_client` has chosen another one before.
    """

    def __init__(self, app: Flask | None = None) -> None:
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Prepares an app. Raises ValueError for a URL or an API key that cannot be used.

        Handlers that run outside of any app context, as in a worker, use the app that was prepared last.
        """
        app.extensions["firmq"] = Client(app.config.get("FIRMQ_URL"), api_key=app.config.get("FIRMQ_API_KEY"))

        def context() -> AppContext:
            return (current_app if has_app_context() else app).app_context()

        REGISTRY.context = context
        if before := use_client(self):
            use_client(*before)  # such as a test's

    @property
    def client(self) -> Client:
        """Returns the client of the current app. Raises RuntimeError outside of an app context."""
        if "firmq" not in current_app.extensions:
            raise RuntimeError("the current app has no Firmq: call Firmq(app), or init_app(app)")
        return cast("Client", current_app.extensions["firmq"])

    def submit(
        self, task_type: str, data: Any = None, *, idempotency_key: str | None = None, **options: Unpack[Options]
    ) -> Accepted:
        """Submits a task by the client of the current app, as `Client.submit` does."""
        return self.client.submit(task_type, data, idempotency_key=idempotency_key, **options)
