"""`python -m tests.features.durable.flows.selftest`: plants bugs into copies of the code.

Its status is 1 when one is not found.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

from tests.support.planting import copied_code


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
        "shared/redis/lua/steps/step_save.lua",
        "redis.call('HSET', keys.rq_job(id), field, value, 'steps',",
        "redis.call('HSET', keys.rq_job(id), is_checkpoint and field or 'lost', value, 'steps',",
    ),
    Bug(
        "a signal wakes nobody",
        "shared/features/durable/lua/signal_send.lua",
        "then run_now_one(id) end",
        "then local woken = false end",
    ),
    Bug(
        "the start of children is not stored, so the next attempt starts others",
        "shared/features/durable/lua/children_start.lua",
        "redis.call('HSET', keys.rq_job(id), field, value, 'steps',",
        "redis.call('HSET', keys.rq_job(id), 'lost', value, 'steps',",
    ),
    Bug(
        "a handler forgets what its earlier attempts have stored",
        "worker/handlers/attempt_steps.py",
        "self._records = dict(stored.records)",
        "self._records = {}",
    ),
]


def found(bug: Bug) -> bool:
    """Returns whether the laboratory complains about a copy of the code with this bug."""
    words = ["--most", "3", "--double", "0", "--side-by-side", "3", "--longest", "20"]
    command = [sys.executable, "-m", "tests.features.durable.flows", *words]
    with copied_code((bug.path, bug.old, bug.new)) as code:
        environment = {**os.environ, "PYTHONPATH": str(code)}  # executors do not look for modules in their folder
        done = subprocess.run(
            command, cwd=code, env=environment, capture_output=True, text=True, timeout=200, check=False
        )
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
