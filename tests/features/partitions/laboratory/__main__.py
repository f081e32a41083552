"""`python -m tests.features.partitions.laboratory`: faults in a system of several partitions; --speed: how fast it is.

Ends with status 1 when a promise was broken.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.features.partitions.laboratory.laboratory import experiment
from tests.features.partitions.laboratory.speed import measure


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.features.partitions.laboratory", description=__doc__)
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(1, 11)))
    parser.add_argument("--minutes", type=float, default=5.0, help="how long faults go on, for each seed")
    parser.add_argument("--dead", type=float, default=60.0, help="seconds for which one partition is dead at the end")
    parser.add_argument(
        "--speed", type=int, default=0, metavar="ROUNDS", help="measure speed in so many rounds instead"
    )
    parser.add_argument("--part", type=float, default=0.1, help="part of a core that a throttled server has")
    parser.add_argument("--tasks", type=int, default=6000, help="tasks for each throttled server")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # everything that was started ends with us
    if options.speed:
        print(measure(options.speed, options.part, options.tasks))
        return 0
    broken = 0
    for seed in options.seeds:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="partitions-") as name:
            figures, complaints = experiment(Path(name), seed, options.minutes * 60, options.dead, options.partitions)
        print(
            f"seed {seed}, {time.monotonic() - begun:.0f} s: {figures}: {'; '.join(complaints) or 'all kept'}",
            flush=True,
        )
        broken += bool(complaints)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
