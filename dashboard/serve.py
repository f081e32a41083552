"""Serves the dashboard with one gunicorn process and threads, so that all pages share one snapshot.

A thread gets a request when all of it has arrived (`server.py`), so a slow client does not occupy a thread.
"""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

from taskqueue.dashboard.auth.users import Users
from taskqueue.shared.config.settings import Settings
from taskqueue.shared.http import bind
from taskqueue.shared.http.gunicorn import Served, require_authentication
from taskqueue.shared.redis.client import connect_for
from taskqueue.shared.redis.startup_check import exit_if_unusable

if TYPE_CHECKING:
    from taskqueue.dashboard.below_path import BelowPath

log = logging.getLogger(__name__)

THREADS = 16
DRAIN_SECONDS = 10


def serve(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT. Exits with status 2 if it cannot start."""
    users = Users.load_or_exit(settings)
    if not users.required:
        remedy = "DASHBOARD_USERS (taskqueue user NAME ROLE creates a line)"
        require_authentication(settings, missing="users", remedy=remedy)
    listener = bind.listen(settings.bind_host, settings.dashboard_port, "dashboard", "DASHBOARD_PORT")
    for each in settings.partitions.values():
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
            worker_class="taskqueue.dashboard.server.GunicornWorker",
            threads=THREADS,
            graceful_timeout=DRAIN_SECONDS,
        )

    def load(self) -> BelowPath:
        """Returns the app, built in the serving process."""
        from taskqueue.dashboard.app import create_app
        from taskqueue.dashboard.below_path import BelowPath
        from taskqueue.dashboard.partitions import PartitionedDashboard

        trusted = self.settings.dashboard_trusted_proxies
        if len(self.settings.partitions) > 1:
            return BelowPath(PartitionedDashboard(self.settings, self.users), trusted)
        [settings] = self.settings.partitions.values()
        return BelowPath(create_app(settings, connect_for(settings, "dashboard"), self.users), trusted)
