"""`python -m tests.security.audit`: has what the image is built from holes that are known?

`make check` asks, and says so where nobody answers; with `--hard`, as in `make scan`, that is a failure. One package is
asked about first: a mirror without advisories would be asked for all of them in vain, and a scanner that has looked at
nothing finds nothing, too.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.harness import ROOT

LOCK = ROOT / "requirements.lock"
FIRST = 15.0
"""Seconds for the question whether anybody answers."""
ALL = 180.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was seen."""

    status: int
    text: str


def audit(hard: bool) -> Verdict:
    """Asks about one package, then about all."""
    text = LOCK.read_text()
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as one:
        one.write(first_of(text))
        one.flush()
        if not _audited(_ask(Path(one.name), FIRST)):
            return judge(None, hard)
    return judge(_ask(LOCK, ALL), hard)


def judge(answer: dict[str, Any] | None, hard: bool) -> Verdict:
    """What an answer of pip-audit means; None: nobody answered."""
    looked_at = _audited(answer)
    if not looked_at:
        return Verdict(int(hard), "dependency audit skipped: no advisory service is reachable")
    holes = [
        f"{each['name']} {each['version']}: {hole['id']}, mended in {', '.join(hole['fix_versions']) or 'none yet'}"
        for each in looked_at
        for hole in each["vulns"]
    ]
    if holes:
        return Verdict(1, "\n".join([*holes, "make lock takes newer versions"]))
    left_out = len((answer or {})["dependencies"]) - len(looked_at)
    if left_out and hard:
        return Verdict(1, f"{left_out} packages could not be looked at")
    return Verdict(0, f"dependency audit: {len(looked_at)} packages, no known hole")


def first_of(lock: str) -> str:
    """The first package of a lock with its hashes, without what depends on the platform."""
    found = re.search(r"^[\w.-]+==[^\s;]+ \\\n(?:    --hash=\S+(?: \\)?\n)+", lock, re.MULTILINE)
    if not found:
        raise ValueError("the lock has no package with hashes")
    return found[0]


def _audited(answer: dict[str, Any] | None) -> list[dict[str, Any]]:
    return [each for each in (answer or {}).get("dependencies", []) if "vulns" in each]


def _ask(requirements: Path, seconds: float) -> dict[str, Any] | None:
    """pip-audit's answer; None when it has none. It ends with 1 for a hole and for trouble alike."""
    command = [
        sys.executable,
        "-m",
        "pip_audit",
        "--requirement",
        str(requirements),
        "--disable-pip",
        "--require-hashes",
    ]
    options = ["--progress-spinner", "off", "--format", "json", "--timeout", "5"]
    try:
        done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=seconds, check=False)
        answer: dict[str, Any] = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        return None
    return answer


def main() -> int:
    verdict = audit("--hard" in sys.argv[1:])
    print(verdict.text, file=sys.stderr if verdict.status else sys.stdout)
    return verdict.status


if __name__ == "__main__":
    sys.exit(main())
