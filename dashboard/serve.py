"""One process of gunicorn with threads: people are few, and one process means one shared look at Redis.

Threads read sockets here, so someone who sends slowly can hold one; a dashboard faces its own people, not the world.
"""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gunicorn.app.base import BaseApplication
from gunicorn.glogging import Logger

from dashboard.users import Users
from shared import listening
from shared.first_contact import exit_if_unusable
from shared.redis_client import connect
from shared.settings import Settings, exit_with

if TYPE_CHECKING:
    from flask import Flask

log = logging.getLogger(__name__)

THREADS = 16
DRAIN_SECONDS = 10


def serve(settings: Settings) -> None:
    """Listens and serves until SIGTERM or SIGINT. Exits with status 2 when it cannot."""
    users = Users.load_or_exit(settings)
    _refuse_open_door(settings, users)
    listener = listening.listen(settings.bind_host, settings.dashboard_port, "dashboard", "DASHBOARD_PORT")
    exit_if_unusable(settings.store_url)
    log.info(
        "listening",
        extra={
            "address": f"http://{listening.shown(settings.bind_host, listener)}",
            "sign_in": "required" if users.required else "none: whoever reaches this address may do everything",
        },
    )
    Dashboard(settings, users, listener).run()


def _refuse_open_door(settings: Settings, users: Users) -> None:
    if users.required or settings.allow_anonymous or listening.is_loopback(settings.bind_host):
        return
    exit_with(
        f"BIND_HOST={settings.bind_host} would let anyone in, as there are no users: bind to 127.0.0.1, set "
        "DASHBOARD_USERS (python -m dashboard user NAME ROLE makes a line), or set ALLOW_ANONYMOUS=true if the "
        "network is trusted"
    )


class Dashboard(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """The dashboard as gunicorn runs it."""

    def __init__(self, settings: Settings, users: Users, listener: socket.socket) -> None:
        self.settings = settings
        self.users = users
        self.listener = listener
        super().__init__()

    def load_config(self) -> None:
        options: dict[str, Any] = {
            "bind": f"fd://{self.listener.fileno()}",
            "workers": 1,
            "worker_class": "gthread",
            "threads": THREADS,
            "keepalive": 15,
            "graceful_timeout": DRAIN_SECONDS,
            "logger_class": QuietLogger,
            "worker_tmp_dir": _memory_folder(),
            "control_socket_disable": True,
        }
        for name, value in options.items():
            self.cfg.set(name, value)

    def load(self) -> Flask:
        """Builds the app in the process that serves it."""
        from dashboard.app import create_app

        app = create_app(self.settings, connect(self.settings.store_url, name="dashboard"), self.users)
        app.extensions["background"].start()
        return app


class QuietLogger(Logger):  # type: ignore[misc]  # gunicorn has no types
    """Lets gunicorn's warnings and errors go the way of every other line."""

    def setup(self, cfg: object) -> None:
        self.error_log.propagate = True
        self.error_log.setLevel(logging.WARNING)

    def access(self, resp: object, req: object, environ: object, request_time: object) -> None:
        """Pages that refresh themselves would drown everything else; who changed what is in the audit record."""


def _memory_folder() -> str | None:
    """A folder in memory, where there is one: gunicorn touches a file in it every second."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) and Path("/dev/shm").is_dir() else None  # noqa: S108
