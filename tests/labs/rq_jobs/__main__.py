"""`python -m tests.labs.rq_jobs`: kills workers of an RQ program's jobs; status 1 when a job was lost.

With `untouched` it plants RQ's structures that are not ours beside a running system, and compares them afterwards.
With `side-by-side` our worker class, RQ's worker and rq-scheduler serve one program, all of them are killed, and then
they run in peace for `--minutes`. With `figures` it measures jobs a second and the wait of a lone job with each class.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
from pathlib import Path

from tests.labs.rq_jobs.figures import measure
from tests.labs.rq_jobs.laboratory import Findings, Laboratory
from tests.labs.rq_jobs.side_by_side import Findings as SideBySideFindings
from tests.labs.rq_jobs.side_by_side import SideBySide
from tests.labs.rq_jobs.untouched import Untouched


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.labs.rq_jobs", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("kills", "untouched", "side-by-side", "figures"), default="kills")
    parser.add_argument("--minutes", type=float, default=60, help="of `untouched` and `side-by-side` (default: 60)")
    parser.add_argument("--jobs", type=int, default=None, help="jobs that RQ enqueues (default: 10,000; 1,000; 5,000)")
    parser.add_argument("--kills", type=int, default=None, help="processes to kill (default: 50; side by side 20)")
    parser.add_argument("--restarts", type=int, default=5, help="how often Redis is killed too (default: 5)")
    parser.add_argument("--seed", type=int, default=None, help="of the moments of the kills")
    parser.add_argument("--rounds", type=int, default=3, help="of `figures` (default: 3)")
    parser.add_argument("--stock", action="store_true", help="run the jobs on RQ's own worker, for comparison")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # everything that was started ends with us
    if options.what == "untouched":
        return untouched(options.minutes)
    if options.what == "figures":
        return figures(options.jobs or 5000, options.rounds)
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(3))
    random.seed(seed)
    with tempfile.TemporaryDirectory(prefix="rq-") as name:
        findings: Findings | SideBySideFindings
        if options.what == "side-by-side":
            kills = 20 if options.kills is None else options.kills
            findings = SideBySide(Path(name), options.jobs or 1000).run(kills, options.minutes)
        else:
            laboratory = Laboratory(Path(name), options.jobs or 10_000, stock=options.stock)
            findings = laboratory.run(50 if options.kills is None else options.kills, options.restarts)
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


def figures(jobs: int, rounds: int) -> int:
    """Prints the figures, and the load of the machine before and after; returns the exit status."""
    print(f"load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="rq-") as name:
        for line in measure(Path(name), jobs, rounds):
            print(line, flush=True)
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
