"""Database connections between tasks."""

from __future__ import annotations

from django.db import close_old_connections, reset_queries


def check_connections() -> None:
    """Closes this thread's connections that are broken or past their CONN_MAX_AGE, as Django does between requests."""
    reset_queries()
    close_old_connections()
