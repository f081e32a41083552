"""`python -m tests.labs.faults.selftest`: plants one bug at a time in a copy of the code; fails when one is not found.

Every check is made without a bug first, or what it finds would mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from tests.labs.faults.__main__ import RESULTS
from tests.labs.faults.checks import Check
from tests.labs.faults.mutations import MUTATIONS, Mutation
from tests.support.planting import copied_code

LOOKED = (0, 1)
"""What the laboratory and pytest end with when they could look; 1: a promise is broken."""
CLEAN, FOUND = "clean", "found"
NO_BUG = "(no bug)"


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of one bug, or of a check without one, and who found it: judges, or tests."""

    bug: str
    promise: str
    result: str
    found_by: tuple[str, ...]
    seconds: float
    said: str = ""

    @property
    def well(self) -> bool:
        return self.result == (CLEAN if self.bug == NO_BUG else FOUND)


def seek(mutation: Mutation) -> Trial:
    """Plants a bug, and has it looked for."""
    began = time.monotonic()
    status, said = look(mutation.check, mutation)
    by = mutation.check.finders(mutation.judges, said)
    result = FOUND if by else "not found" if status == 0 else "found by others only"
    return _trial(mutation.name, mutation.promise, result, by, began, status, said)


def control(check: Check) -> Trial:
    """The check without a bug: nobody who finds bugs by it may find one."""
    began = time.monotonic()
    judges = [judge for mutation in MUTATIONS if mutation.check == check for judge in mutation.judges]
    status, said = look(check)
    by = check.finders(judges, said)
    return _trial(NO_BUG, str(check), "found without a bug" if by else CLEAN, by, began, status, said)


def _trial(bug: str, promise: str, result: str, by: tuple[str, ...], began: float, status: int, said: str) -> Trial:
    if status not in LOOKED:
        result = f"not looked for: status {status}"
    return Trial(bug, promise, result, by, round(time.monotonic() - began, 1), said)


def look(check: Check, mutation: Mutation | None = None) -> tuple[int, str]:
    """Makes a check in a copy of the code, with a bug in it if there is one: the status, and what was said."""
    bug = (mutation.path, mutation.old, mutation.new) if mutation else None
    with copied_code(bug) as code:
        folder = code.parent
        log = folder / "log"
        with log.open("wb") as out:
            done = subprocess.run(
                [sys.executable, "-m", *check.command(str(folder))],
                cwd=code,
                env={
                    **os.environ,
                    "PYTHONDONTWRITEBYTECODE": "1",
                    "PYTHONPATH": str(code),  # executors do not look for modules in their folder
                    "TMPDIR": str(folder),
                },
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                check=False,
            )
        return done.returncode, log.read_text(errors="replace")


def checks_of(mutations: Sequence[Mutation]) -> list[Check]:
    """Each once: the laboratory's one by one, all tests together."""
    checks = dict.fromkeys(mutation.check for mutation in mutations if mutation.check.faults)
    tests = dict.fromkeys(address for mutation in mutations for address in mutation.check.tests)
    return [*checks, *([Check(tests=tuple(tests))] if tests else [])]


def shown(trial: Trial) -> str:
    """One line of the table."""
    by = "; ".join(trial.found_by if trial.result == FOUND else (trial.result, *trial.found_by))
    return f"| {trial.bug:58} | {trial.promise[:50]:50} | {trial.seconds:5.0f} | {by} |"


def keep(trials: Sequence[Trial], folder: Path) -> Path:
    """Writes them beside the figures of the laboratory."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "selftest.json"
    rows = [{name: value for name, value in asdict(trial).items() if name != "said"} for trial in trials]
    path.write_text(json.dumps(rows, indent=1) + "\n")
    return path


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.labs.faults.selftest", description=__doc__)
    parser.add_argument("--only", default="", help="those whose name this regular expression finds")
    parser.add_argument("--at-once", type=int, default=2, help="how many checks go on side by side")
    options = parser.parse_args()
    began = time.monotonic()
    mutations = [each for each in MUTATIONS if re.search(options.only, each.name)]
    acts = [*(partial(control, each) for each in checks_of(mutations)), *(partial(seek, each) for each in mutations)]
    trials = []
    print(f"| {'planted bug':58} | {'promise':50} | secs. | found by |\n{'|---' * 4}|", flush=True)
    with ThreadPoolExecutor(options.at_once) as pool:
        for trial in pool.map(lambda act: act(), acts):
            trials.append(trial)
            print(shown(trial), flush=True)
    found = sum(trial.result == FOUND for trial in trials)
    print(f"\n{found} of {len(mutations)} planted bugs were found in {time.monotonic() - began:.0f} s")
    if not options.only:
        print(f"kept in {keep(trials, RESULTS)}")
    for trial in trials:
        if not trial.well:
            print(f"\n{trial.bug} ({trial.promise}): {trial.result}\n{trial.said[-3000:]}")
    return 0 if all(trial.well for trial in trials) else 1


if __name__ == "__main__":
    sys.exit(main())
