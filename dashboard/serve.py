"""Serves the dashboard with one gunicorn process and threads, so that all pages share one snapshot.

A thread gets a request when all of it has arrived (`server.py`), so a slow client does not occupy a thread.
"""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

from firmq.dashboard.auth.users import Users
from firmq.shared.config.settings import Settings
from firmq.shared.http import bind
from firmq.shared.http.gunicorn import Served, require_authentication
from firmq.shared.redis.client import connect_for
from firmq.shared.redis.startup_check import exit_if_unusable

if TYPE_CHECKING:
    from firmq.dashboard.below_path import BelowPath

log = logging.getLogger(__name__)

THREADS = 16
DRAIN_SECONDS = 10


def serve(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT. Exits with status 2 if it cannot start."""
    users = Users.load_or_exit(settings)
    if not users.required:
        remedy = "DASHBOARD_USERS (firmq user NAME ROLE creates a line)"
        require_authentication(settings, missing="users", remedy=remedy)
    listener = bind.listen(settings.bind_host, settings.dashboard_port, "dashboard", "DASHBOARD_PORT")
    for each in settings.stores.values():
        exit_if_unusable(each.store_url)
    log.info(
        "listening",
        extra={
            "address": f"http://{bind.shown(settings.bind_host, listener)}",
            "sign_in": "required" if users.required else "none: every client that reaches this address is an admin",
        },
    )
    Dashboard(settings, users, listener).run()


class Dashboard(Served):
    """The gunicorn application of the dashboard."""

    def __init__(self, settings: Settings, users: Users, listener: socket.socket) -> None:
        self.users = users
        super().__init__(settings, listener)

    def load_config(self) -> None:
        self.configure(
            workers=1,
            worker_class="firmq.dashboard.server.GunicornWorker",
            threads=THREADS,
            graceful_timeout=DRAIN_SECONDS,
        )

    def load(self) -> BelowPath:
        """Returns the app, built in the serving process."""
        from firmq.dashboard.app import create_app
        from firmq.dashboard.below_path import BelowPath
        from firmq.dashboard.feature import features

        trusted = self.settings.dashboard_trusted_proxies
        if len(self.settings.stores) > 1:
            serve = next(each.serve for each in features() if each.serve)
            return BelowPath(serve(self.settings, self.users), trusted)
        [settings] = self.settings.stores.values()
        return BelowPath(create_app(settings, connect_for(settings, "dashboard"), self.users), trusted)
