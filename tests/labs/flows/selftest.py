"""`python -m tests.labs.flows.selftest`: plants bugs into copies of the code; status 1 when one is not found."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.harness import ROOT
from tests.support.planting import plant

LUA = "shared/redis/lua"


@dataclass(frozen=True, slots=True)
class Bug:
    """A change of one file."""

    what: str
    path: str
    old: str
    new: str


# A wake-up that is lost or too early is no such bug: `gather` and `sleep` look again, and recovery wakes the task.
BUGS = [
    Bug(
        "a result is stored under no name, so the step runs again",
        f"{LUA}/steps/step_save.lua",
        "redis.call('HSET', keys.rq_job(id), field, value, 'steps',",
        "redis.call('HSET', keys.rq_job(id), is_checkpoint and field or 'lost', value, 'steps',",
    ),
    Bug(
        "a signal wakes nobody",
        f"{LUA}/steps/signal_send.lua",
        "then run_now_one(id) end",
        "then local woken = false end",
    ),
    Bug(
        "the start of children is not stored, so the next attempt starts others",
        f"{LUA}/steps/children_start.lua",
        "redis.call('HSET', keys.rq_job(id), field, value, 'steps',",
        "redis.call('HSET', keys.rq_job(id), 'lost', value, 'steps',",
    ),
    Bug(
        "a handler forgets what its earlier attempts have stored",
        "worker/durable/replay.py",
        "self._records = dict(stored.records)",
        "self._records = {}",
    ),
]


def found(bug: Bug) -> bool:
    """Returns whether the laboratory complains about a copy of the code with this bug."""
    with tempfile.TemporaryDirectory(prefix="planted-") as name:
        folder = Path(name)
        for each in ("gateway", "worker", "dashboard", "shared", "taskqueue", "tests", "pyproject.toml"):
            source, target = ROOT / each, folder / each
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, target)
        changed = folder / bug.path
        changed.write_text(plant(changed.read_text(), bug.old, bug.new))
        words = ["--most", "3", "--double", "0", "--side-by-side", "3", "--longest", "20"]
        command = [sys.executable, "-m", "tests.labs.flows", *words]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, check=False)
    print(f"{'found' if done.returncode else 'NOT FOUND'}: {bug.what}\n  {_first_finding(done.stdout)}", flush=True)
    return done.returncode == 1 and "findings" in done.stdout


def _first_finding(text: str) -> str:
    return "".join(text.splitlines()[1:2])[:200]


def main() -> int:
    """The command line."""
    missed = [bug for bug in BUGS if not found(bug)]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
