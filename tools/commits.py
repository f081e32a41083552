"""`python -m tools.commits`: checks the subjects of commits against the rules of CONTRIBUTING.md."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SINCE = "e2f014485b64"
"""The last commit from before the rule."""
LONGEST = 72


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


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)


def main() -> int:
    """Returns 1 when a subject breaks a rule."""
    found = [f"{subject!r} {mistake}" for subject in subjects() for mistake in mistakes(subject)]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
