"""`python -m tests.labs.load`: measures the capacity, then puts half of it on for long; status 1 when it shows."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

from tests.labs.load.steady import Plan, capacity, run
from tests.labs.load.verdict import as_json, figures_of, shown
from tests.support.harness import ROOT

RESULTS = ROOT / ".load"
WARM_UP = 120.0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.labs.load", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long it is measured, after two to warm up")
    parser.add_argument("--rate", type=float, help="tasks a second; else half of the capacity, measured first")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the figures")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # everything that was started ends with us
    possible = 0.0
    if not options.rate:
        with tempfile.TemporaryDirectory(prefix="load-") as name:
            possible = capacity(Path(name), 30)
        print(f"{possible:,.0f} tasks a second are possible", flush=True)
    with tempfile.TemporaryDirectory(prefix="load-") as name:
        plan = Plan(options.rate or possible / 2, WARM_UP, options.minutes * 60)
        figures = figures_of(run(plan, Path(name)), hold_latencies=True)
    figures.capacity = possible
    options.results.mkdir(parents=True, exist_ok=True)
    kept = {**as_json(figures), "processors": os.cpu_count(), "others": os.getloadavg()}
    path = options.results / "steady.json"
    path.write_text(json.dumps(kept, indent=1) + "\n")
    print(f"{shown(figures)}\n\nfigures: {path}")
    return 1 if figures.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
