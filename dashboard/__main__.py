"""`python -m dashboard` serves; `python -m dashboard user NAME ROLE` prints a line for DASHBOARD_USERS."""

from __future__ import annotations

import os
import socket
import sys

from dashboard.auth.users import print_user
from dashboard.serve import serve
from shared.config import foreign_names
from shared.config.collector import announce
from shared.config.settings import load_or_exit
from shared.observability import logs


def main() -> None:
    """Serves until SIGTERM or SIGINT, or prints a user's line."""
    if sys.argv[1:2] == ["user"]:
        return print_user(sys.argv[2:])
    settings = load_or_exit()
    instance = f"{socket.gethostname()}-{os.getpid()}"
    logs.configure("dashboard", settings.log_level, settings.log_format, instance=instance)
    foreign_names.warn()
    announce(settings)
    return serve(settings)


if __name__ == "__main__":
    main()
