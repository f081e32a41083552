"""`python -m tests.faults.selftest`: plants a bug at a time in a copy of the code, and fails when one is not found."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.faults.mutations import MUTATIONS, Check, Mutation
from tests.harness import ROOT

LEFT_OUT = shutil.ignore_patterns(
    ".venv",
    ".git",
    ".data",
    ".bench",
    ".faults",
    ".load",
    ".*_cache",
    "__pycache__",
    ".hypothesis",
    "node_modules",
    "*.egg-info",
)
SEED = 3
BROKEN = 1
"""What the laboratory and pytest end with when a promise is broken; anything else says that they could not look."""


def copy_of_the_code(folder: Path) -> Path:
    """What is in the checkout now, in a folder of its own."""
    copy = folder / "code"
    shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
    return copy


def plant(mutation: Mutation, code: Path) -> bool:
    """Changes the text; whether its place was found."""
    path = code / mutation.path
    text = path.read_text()
    if text.count(mutation.old) != 1:
        return False
    path.write_text(text.replace(mutation.old, mutation.new))
    return True


def look(check: Check, code: Path, log: Path) -> int:
    """Runs a check in a copy of the code; how it ended."""
    if check.seconds:
        what = ["tests.faults", "--seeds", str(SEED), "--minutes", f"{check.seconds / 60:.3f}"]
        what += ["--results", str(log.parent / "figures"), "--patience", "45", "--small", "--faults", *check.arguments]
    else:
        what = ["pytest", "-q", "-x", "-p", "no:cacheprovider", *check.arguments]
    with log.open("w") as out:
        return subprocess.run(
            [sys.executable, "-m", *what],
            cwd=code,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(log.parent)},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode


def trial(mutation: Mutation | None, check: Check) -> tuple[str, float, str]:
    """What became of one bug (none: the code as it is), how long that took, and what was said."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="selftest-") as name:
        folder = Path(name)
        code = copy_of_the_code(folder)
        if mutation and not plant(mutation, code):
            return "its place in the code is gone", 0.0, ""
        log = folder / "log"
        status = look(check, code, log)
        said = log.read_text(errors="replace")
    return verdict(mutation, status, said), time.monotonic() - began, said


def verdict(mutation: Mutation | None, status: int, said: str) -> str:
    """What a check has found, in words. A bug is found by the judge whose promise it breaks, not by any accident."""
    if status == 0:
        return "not found" if mutation else "clean"
    if status != BROKEN:
        return f"not looked for: status {status}"
    by_whom = mutation.seen_by if mutation else ()
    return "found" if not by_whom or any(f"BROKEN: {each}" in said for each in by_whom) else "found by others only"


def first_complaint(said: str) -> str:
    """The line that says what was found."""
    lines = [line.strip() for line in said.splitlines() if line.strip().startswith(("BROKEN", "FAILED", "ERROR"))]
    return "; ".join(lines)[:200]


def clean_checks(mutations: Sequence[Mutation]) -> list[str]:
    """What the checks say of the code as it is: one that fails without a bug finds nothing."""
    troubles = []
    for check in dict.fromkeys(mutation.check for mutation in mutations):
        result, seconds, said = trial(None, check)
        print(f"{'without a bug':52} {result:10} {seconds:5.0f} s  {' '.join(check.arguments)}", flush=True)
        if result != "clean":
            troubles.append(f"{' '.join(check.arguments)} fails without a bug:\n{said[-3000:]}")
    return troubles


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.selftest", description=__doc__)
    parser.add_argument("--only", default="", help="those whose name has this in it")
    parser.add_argument("--skip-clean", action="store_true", help="does not run the checks without a bug first")
    options = parser.parse_args()
    mutations = [each for each in MUTATIONS if options.only in each.name]
    troubles = [] if options.skip_clean else clean_checks(mutations)
    found = 0
    for each in mutations:
        result, seconds, said = trial(each, each.check)
        print(f"{each.name:52} {result:10} {seconds:5.0f} s  {first_complaint(said)}", flush=True)
        found += result == "found"
        if result != "found":
            troubles.append(f"{each.name} ({each.promise}): {result}\n{said[-1500:]}")
    print(f"\n{found} of {len(mutations)} planted bugs were found")
    print("\n".join(troubles))
    return 1 if troubles else 0


if __name__ == "__main__":
    sys.exit(main())
