"""`taskqueue dashboard`: serves the dashboard."""

from __future__ import annotations

import os
import socket

from taskqueue.dashboard.serve import serve
from taskqueue.shared.config import foreign_names
from taskqueue.shared.config.collector import announce
from taskqueue.shared.config.settings import load_or_exit
from taskqueue.shared.observability import logs


def main() -> None:
    """Serves until SIGTERM or SIGINT."""
    settings = load_or_exit()
    instance = f"{socket.gethostname()}-{os.getpid()}"
    logs.configure(
        "dashboard",
        settings.log_level,
        settings.log_format,
        instance=instance,
        app_version=settings.app_version,
        export=settings.log_export,
    )
    foreign_names.warn(settings)
    announce(settings)
    serve(settings)


if __name__ == "__main__":
    main()
