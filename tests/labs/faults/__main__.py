"""`python -m tests.labs.faults`: one run for each seed; ends with status 1 when a promise was broken in any of them."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.labs.faults import sentinel
from tests.labs.faults.case import Case, read_back
from tests.labs.faults.faults import FAULTS, Fault
from tests.labs.faults.figures import BAR, NEXT_TURN, Figures, figures_of, keep, recoveries_of, shown, table
from tests.labs.faults.judges import judge_all
from tests.labs.faults.laboratory import QUIET, Laboratory, names
from tests.labs.faults.site import PARTS, SMALL, Site
from tests.support.harness import ROOT

RESULTS = ROOT / ".faults"


@dataclass(frozen=True, slots=True)
class Mode:
    """Where the laboratory works, what goes wrong there, and what is promised all the same."""

    site: type[Site]
    faults: Sequence[Fault]
    judge: Callable[[Case], dict[str, list[str]]]
    results: Path


ONE_SERVER = Mode(Site, FAULTS, judge_all, RESULTS)
SENTINELS = Mode(sentinel.WatchedSite, sentinel.FAULTS_HERE, sentinel.judge, RESULTS / "sentinel")


def experiment(
    folder: Path,
    seed: int,
    seconds: float,
    only: Collection[str] | None = None,
    *,
    mode: Mode = ONE_SERVER,
    pause: float = 0.12,
    patience: float = QUIET,
    small: bool = False,
) -> Figures:
    """One run from start to verdict."""
    site = mode.site(folder, SMALL if small else PARTS)
    faults = [fault for fault in mode.faults if not only or fault.name in only]
    laboratory = Laboratory(site, seed, faults, pause=pause, patience=patience, small=small)
    try:
        run = laboratory.work(seconds)
        (folder / "happened").write_text("".join(f"{each}\n" for each in run.happened))
        case = read_back(run)
        complaints = mode.judge(case)
        recoveries = recoveries_of(case)
        slow = [f"{name}: {took:.1f} s" for name, took in recoveries if took > BAR]
        if slow:
            complaints["work goes on soon after a fault"] = slow
        figures = figures_of(case, complaints, recoveries)
    finally:
        left = site.close()
    if left:
        figures.complaints["no process is left over"] = [f"processes {left} had to be killed"]
    return figures


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.labs.faults", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(1, 11)))
    parser.add_argument("--minutes", type=float, default=5.0, help="how long faults go on, for each seed")
    parser.add_argument("--faults", nargs="+", metavar="FAULT", help="these only")
    parser.add_argument(
        "--sentinel",
        dest="mode",
        action="store_const",
        const=SENTINELS,
        default=ONE_SERVER,
        help="a master with two replicas and three sentinels, and changes of master",
    )
    parser.add_argument("--results", type=Path, help="folder for the figures")
    parser.add_argument(
        "--patience", type=float, default=QUIET, help="seconds without any change after which all is over"
    )
    parser.add_argument("--small", action="store_true", help="half as many processes, and busier")
    options = parser.parse_args()
    mode: Mode = options.mode
    results: Path = options.results or mode.results
    if unknown := set(options.faults or ()) - set(names(mode.faults)):
        parser.error(f"no such faults: {sorted(unknown)}; there are {names(mode.faults)}")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # everything that was started ends with us
    runs = []
    for seed in options.seeds:
        folder = Path(tempfile.mkdtemp(prefix=f"faults-{seed}-"))
        print(f"seed {seed}: {options.minutes:g} minutes of faults; logs and ledger in {folder}", flush=True)
        figures = experiment(
            folder,
            seed,
            options.minutes * 60,
            options.faults,
            mode=mode,
            patience=options.patience,
            small=options.small,
        )
        if figures.slowest_restart > NEXT_TURN:
            figures.complaints["what was cut short has its next turn"] = [f"after {figures.slowest_restart:.1f} s"]
        runs.append(figures)
        print(shown(figures), flush=True)
        keep(figures, results)
        if figures.clean:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"\n{table(runs)}\n\nfigures: {results}")
    return 0 if all(run.clean for run in runs) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception:
        # Not 1: nobody has looked at any promise.
        traceback.print_exc()
        sys.exit(2)
