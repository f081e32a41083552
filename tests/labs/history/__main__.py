"""`python -m tests.labs.history pages|faults|cost`: the history over millions of tasks, and among killed processes."""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import create_engine

from tests.labs.history import cost, filling, pages
from tests.labs.history.faults import Laboratory
from tests.labs.history.postgresql import PostgreSQL


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.labs.history", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    of_pages = commands.add_parser("pages", help="fill a PostgreSQL and time the pages of dashboard and gateway")
    of_pages.add_argument("--rows", type=int, default=10_000_000, help="ended tasks (default: 10,000,000)")
    of_pages.add_argument("--folder", type=Path, help="keep the data here, for the next run")
    of_faults = commands.add_parser(
        "faults", help="kill and freeze housekeepers, Redis and the database; status 1 on loss"
    )
    of_faults.add_argument("--seconds", type=float, default=300, help="how long (default: 300)")
    of_faults.add_argument("--seed", type=int, default=None, help="of the choice of what is killed")
    of_faults.add_argument("--sqlite", action="store_true", help="on SQLite, without faults of the database")
    of_cost = commands.add_parser("cost", help="time drains with and without the history, in turn")
    of_cost.add_argument("--tasks", type=int, default=50_000, help="empty tasks of a drain (default: 50,000)")
    of_cost.add_argument("--rounds", type=int, default=5, help="drains of each (default: 5)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # everything that was started ends with us
    with tempfile.TemporaryDirectory(prefix="history-") as name:
        Path(name).chmod(0o755)  # PostgreSQL runs as another user
        return RUN[options.command](Path(name), options)


def _pages(folder: Path, options: argparse.Namespace) -> int:
    data = options.folder or folder / "postgresql"
    is_filled = (data / "PG_VERSION").exists()
    with PostgreSQL(data, "shared_buffers=1GB", "max_wal_size=4GB", "synchronous_commit=off") as server:
        if not is_filled:
            engine = create_engine(server.url)
            filling.fill(engine, options.rows)
            engine.dispose()
        print(f"{'page':54} {'ms':>6} {'longest':>8} {'bytes':>7}")
        for page, middle, longest, size in pages.measure(folder, server.url):
            print(f"{page:54} {middle:6.0f} {longest:8.0f} {size:7}")
    return 0


def _faults(folder: Path, options: argparse.Namespace) -> int:
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(3))
    random.seed(seed)
    if options.sqlite:
        findings = Laboratory(folder, f"sqlite:///{folder / 'history.db'}").run(options.seconds)
    else:
        with PostgreSQL(folder / "postgresql") as server:
            findings = Laboratory(folder, server.url, server).run(options.seconds)
    print(f"seed {seed}: {findings}")
    return 0 if findings.well else 1


def _cost(folder: Path, options: argparse.Namespace) -> int:
    with PostgreSQL(folder / "postgresql") as server:
        found = cost.measure(options.tasks, options.rounds, server)
    for without, with_it in found:
        rates = f"without {without.rate:,.0f}, with {with_it.rate:,.0f} tasks/s: {with_it.rate / without.rate:.3f}"
        print(f"{rates}; last row {with_it.late:.1f} s later")
    print(f"median of the ratios {statistics.median(with_it.rate / without.rate for without, with_it in found):.3f}")
    return 0


RUN: dict[str, Callable[[Path, argparse.Namespace], int]] = {"pages": _pages, "faults": _faults, "cost": _cost}


if __name__ == "__main__":
    sys.exit(main())
