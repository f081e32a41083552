"""`firmq outbox`: runs a relay on a database that SQLAlchemy reaches."""

from __future__ import annotations

import logging

from sqlalchemy import create_engine
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

from firmq.outbox.process import refused_lines, run_relay
from firmq.outbox.sqlalchemy import SqlTable
from firmq.shared.config.settings import exit_with, load_or_exit
from firmq.shared.observability import logs

log = logging.getLogger(__name__)


def main(action: str | None = None) -> int:
    """Runs a relay of OUTBOX_DATABASE; or does `create`, `refused` or `retry`, and returns."""
    settings = load_or_exit()
    logs.configure(
        "outbox", settings.log_level, settings.log_format, instance=settings.instance_id, export=settings.log_export
    )
    table = _table(settings.outbox_database)
    try:
        if action == "create":
            table.create()
        elif action == "refused":
            print(*refused_lines(table), sep="\n")
        elif action == "retry":
            print(f"{table.retry_refused()} rows wait again")
        else:
            log.info("relay of %s", table.engine.url.render_as_string(hide_password=True))
            run_relay(table, settings)
    except SQLAlchemyError as error:
        exit_with(f"the outbox cannot be used: {error}")
    return 0


def _table(url: str) -> SqlTable:
    if not url:
        exit_with("no database: set OUTBOX_DATABASE to its address, such as postgresql+psycopg://app@db/shop")
    try:
        # A relay has one connection at work, and one for metrics.
        return SqlTable(create_engine(url, pool_pre_ping=True, poolclass=QueuePool, pool_size=2, max_overflow=0))
    except (ArgumentError, ModuleNotFoundError) as error:
        exit_with(f"OUTBOX_DATABASE is not an address that SQLAlchemy can use: {error}")
