"""`python -m tools.commits`: checks the subjects of commits; `largest` counts how much they change."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.unasync import MODULES, TARGET

ROOT = Path(__file__).resolve().parents[1]
SINCE = "e2f014485b64"
"""The last commit from before the rule."""
LONGEST = 72
COUNTED_SINCE = "3076f34e8607"
"""The last commit from before the size of commits was counted."""
_NOT_COUNTED = (
    "docs/reference/",
    "k8s/deployment.yaml",
    "k8s/chart/",
    "requirements.lock",
    *(f"{TARGET}/{name}.py" for name in MODULES),
)
"""What is generated."""


def mistakes(subject: str) -> Iterator[str]:
    """Yields what is wrong with a commit's subject."""
    if len(subject) > LONGEST:
        yield f"has {len(subject)} characters; {LONGEST} is the most"
    if not subject[:1].isupper():
        yield "does not begin with a capital letter"
    if subject.endswith("."):
        yield "ends with a full stop"
    if re.fullmatch(r"\w+[^beh]ed", subject.split(" ", maxsplit=1)[0]):
        yield "is not in the imperative, as in: Fix duplicate start after lease loss"


def subjects() -> list[str]:
    """Returns the subjects of the commits to check; of all that are there where history is cut off."""
    known = _git("rev-parse", "--verify", "--quiet", f"{SINCE}^{{commit}}").returncode == 0
    return _git("log", "--no-merges", "--format=%s", f"{SINCE}..HEAD" if known else "HEAD").stdout.splitlines()


def largest() -> int:
    """Returns the lines that the largest commit adds or removes, whichever is more, without moves and generated files.

    What is only deleted is not counted: whole files that go are read by their names."""
    return max((max(added, removed) for added, removed in _changes()), default=0)


def _changes() -> Iterator[tuple[int, int]]:
    if _git("rev-parse", "--verify", "--quiet", f"{COUNTED_SINCE}^{{commit}}").returncode:
        return
    log = _git(
        "log", "--no-merges", "-M", "--diff-filter=d", "--numstat", "--format=tformat:commit", f"{COUNTED_SINCE}..HEAD"
    ).stdout
    for commit in log.split("commit\n")[1:]:
        rows = [line.split("\t") for line in commit.splitlines() if line]
        rows = [row for row in rows if row[0] != "-" and not row[2].startswith(_NOT_COUNTED)]
        yield sum(int(row[0]) for row in rows), sum(int(row[1]) for row in rows)


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)


def main() -> int:
    """Returns 1 when a subject breaks a rule."""
    found = [f"{subject!r} {mistake}" for subject in subjects() for mistake in mistakes(subject)]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
