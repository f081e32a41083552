"""`python -m gateway`: starts the REST API."""

from __future__ import annotations

from gateway.serve import serve
from shared import logs
from shared.settings import load_or_exit


def main() -> None:
    """Serves until it is told to stop."""
    settings = load_or_exit()
    logs.configure("gateway", settings.log_level, settings.log_format)
    serve(settings)


if __name__ == "__main__":
    main()
