"""`firmq gateway`: starts the REST API."""

from __future__ import annotations

import os
import socket

from firmq.gateway.serve import serve
from firmq.shared.config import foreign_names
from firmq.shared.config.collector import announce
from firmq.shared.config.settings import load_or_exit
from firmq.shared.observability import logs


def main() -> None:
    """Serves until SIGTERM or SIGINT."""
    settings = load_or_exit()
    instance = f"{socket.gethostname()}-{os.getpid()}"
    logs.configure(
        "gateway",
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
