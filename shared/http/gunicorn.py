"""Shared set-up of gunicorn for gateway and dashboard."""

from __future__ import annotations

import logging
import os
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gunicorn.app.base import BaseApplication
from gunicorn.glogging import Logger

from firmq.shared.config.settings import Settings, exit_with
from firmq.shared.http import bind

if TYPE_CHECKING:
    import socket


def require_authentication(settings: Settings, *, missing: str, remedy: str) -> None:
    """Exits with status 2 if a part without authentication would be reachable from other machines."""
    if settings.allow_anonymous or bind.is_loopback(settings.bind_host):
        return
    exit_with(
        f"BIND_HOST={settings.bind_host} would allow anonymous access, as there are no {missing}: bind to 127.0.0.1, "
        f"set {remedy}, or set ALLOW_ANONYMOUS=true if the network is trusted"
    )


class Served(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """An app for gunicorn, on ports that are already bound."""

    def __init__(self, settings: Settings, *listeners: socket.socket) -> None:
        self.settings = settings
        self.listeners = listeners
        super().__init__()

    def configure(self, **options: Any) -> None:
        """Sets the options of gunicorn: the shared ones and those given."""
        ours = {
            "bind": [f"fd://{each.fileno()}" for each in self.listeners],
            "logger_class": QuietLogger,
            "worker_tmp_dir": memory_folder(),
            "control_socket_disable": True,
        }
        options["graceful_timeout"] += ceil(self.settings.shutdown_delay)
        for name, value in {**ours, **options}.items():
            self.cfg.set(name, value)


class QuietLogger(Logger):  # type: ignore[misc]  # gunicorn has no types
    """Passes gunicorn's warnings and errors to the log of the process."""

    def setup(self, cfg: object) -> None:
        self.error_log.propagate = True
        self.error_log.setLevel(logging.WARNING)

    def access(self, resp: object, req: object, environ: object, request_time: object) -> None:
        """Writes nothing: the gateway logs requests itself, and pages of the dashboard refresh too often for a log."""


def memory_folder() -> str | None:
    """Returns a folder in memory, or None; gunicorn touches a file in it every second."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) and Path("/dev/shm").is_dir() else None  # noqa: S108
