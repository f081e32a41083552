"""`python -m tests.features.durable.flows`: kills flows at every failpoint, and at random pairs.

Its status is 1 when one is not exact.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce

from tests.features.durable.flows import killed_redis
from tests.features.durable.flows.laboratory import Fault, Laboratory, Report, double_faults, single_faults
from tests.features.durable.flows.waiting import measure


def run(plans: Sequence[Sequence[Fault]], longest: float) -> Report:
    """Runs flows one after the other."""
    with Laboratory(longest) as laboratory:
        return reduce(Report.__add__, (laboratory.run(each, at) for at, each in enumerate(plans)), Report())


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.features.durable.flows", description=__doc__)
    parser.add_argument("--waiting", type=int, default=0, help="measure so many waiting flows instead")
    parser.add_argument(
        "--killed-redis", type=int, default=0, help="instead run 30 flows so often while Redis is killed"
    )
    parser.add_argument("--fsync", type=float, default=0.4, help="seconds that an fsync of that Redis takes (0.4)")
    parser.add_argument("--double", type=int, default=500, help="random pairs of faults (default: 500)")
    parser.add_argument("--most", type=int, default=0, help="at most so many of the single faults, at random (0: all)")
    parser.add_argument("--seed", type=int, default=1, help="of the pairs")
    parser.add_argument("--side-by-side", type=int, default=2, help="flows at a time (default: 2)")
    parser.add_argument("--longest", type=float, default=120.0, help="seconds that a flow may take (default: 120)")
    options = parser.parse_args()
    if options.waiting:
        print(measure(options.waiting))
        return 0
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # everything that was started ends with us
    if options.killed_redis:
        return _kill_redis(options.killed_redis, options.fsync, options.longest)
    dice, begun = random.Random(options.seed), time.monotonic()
    singles = single_faults()
    plans = [*(dice.sample(singles, options.most) if options.most else singles), *double_faults(options.double, dice)]
    lanes = [plans[at :: options.side_by_side] for at in range(options.side_by_side)]
    with ThreadPoolExecutor(len(lanes)) as threads:
        report = reduce(Report.__add__, threads.map(partial(run, longest=options.longest), lanes), Report())
    print(f"seed {options.seed}, {time.monotonic() - begun:.0f} s: {report}")
    return 1 if report.findings else 0


def _kill_redis(runs: int, fsync: float, longest: float) -> int:
    findings = 0
    for at in range(1, runs + 1):
        begun = time.monotonic()
        about, *found = killed_redis.run(30, fsync, longest)
        print(
            f"run {at}, {time.monotonic() - begun:.0f} s: {about}; {len(found)} findings", *found, sep="\n", flush=True
        )
        findings += len(found)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
