"""`python -m tests.labs.rq_jobs`: kills workers of an RQ program's jobs; status 1 when a job was lost.

With `untouched` it plants RQ's structures that are not ours beside a running system, and compares them afterwards.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
from pathlib import Path

from tests.labs.rq_jobs.laboratory import Laboratory
from tests.labs.rq_jobs.untouched import Untouched


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.labs.rq_jobs", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("kills", "untouched"), default="kills")
    parser.add_argument("--minutes", type=float, default=60, help="duration of `untouched` (default: 60)")
    parser.add_argument("--jobs", type=int, default=10_000, help="jobs that RQ enqueues (default: 10,000)")
    parser.add_argument("--kills", type=int, default=50, help="workers to kill (default: 50)")
    parser.add_argument("--restarts", type=int, default=5, help="how often Redis is killed too (default: 5)")
    parser.add_argument("--seed", type=int, default=None, help="of the moments of the kills")
    parser.add_argument("--stock", action="store_true", help="run the jobs on RQ's own worker, for comparison")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # everything that was started ends with us
    if options.what == "untouched":
        return untouched(options.minutes)
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(3))
    random.seed(seed)
    with tempfile.TemporaryDirectory(prefix="rq-") as name:
        laboratory = Laboratory(Path(name), options.jobs, stock=options.stock)
        findings = laboratory.run(options.kills, options.restarts)
    print(f"seed {seed}: {findings}")
    return 0 if findings.well else 1


def untouched(minutes: float) -> int:
    """Runs it and prints what has changed; returns the exit status."""
    with tempfile.TemporaryDirectory(prefix="rq-") as name:
        run = Untouched(minutes * 60)
        found = run.run(Path(name))
    print(f"{len(run.planted)} keys of RQ beside {run.tasks} tasks and {run.jobs} adopted jobs in {minutes:g} min")
    print("\n".join(found) or "none has changed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
