"""`python -m gateway`: starts the REST API."""

from __future__ import annotations

import os
import socket

from gateway.serve import serve
from shared.config import foreign_names
from shared.config.collector import announce
from shared.config.settings import load_or_exit
from shared.observability import logs


def main() -> None:
    """Serves until SIGTERM or SIGINT."""
    settings = load_or_exit()
    instance = f"{socket.gethostname()}-{os.getpid()}"
    logs.configure("gateway", settings.log_level, settings.log_format, instance=instance)
    foreign_names.warn()
    announce(settings)
    serve(settings)


if __name__ == "__main__":
    main()
