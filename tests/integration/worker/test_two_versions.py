"""A rolling update: workers and housekeepers of an earlier version and of this one share the queues.

The earlier versions are taken from the history of this repository: the commit before this one, and the first one that
wrote today's data format, because everything since then must get along with it.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from firmq.shared.domain.task import Outcome, TaskState
from firmq.shared.redis import schema_version
from tests.support.archives import unpack
from tests.support.harness import ROOT, System, wait_until


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, check=True).stdout


def earlier(which: str) -> str:
    """A commit of today's format; skips where there is none, as in an unpacked archive or a shallow clone."""
    try:
        same = git("log", f"-SFORMAT = {schema_version.FORMAT}", "--format=%H", "--", "shared").decode().split()
        first = git("rev-parse", "--verify", "HEAD~1" if which == "the one before" else same[-1]).decode().strip()
        git("merge-base", "--is-ancestor", same[-1], first)
        return first
    except (OSError, subprocess.CalledProcessError, IndexError):
        pytest.skip("the history of the repository, or an earlier version of this format, is not here")


def unpacked(commit: str, folder: Path) -> Path:
    """The code of a commit."""
    with tarfile.open(fileobj=io.BytesIO(git("archive", commit))) as archive:
        unpack(archive, folder)
    return folder


@pytest.mark.parametrize("which", ["the one before", "the first of this format"])
def test_two_versions_share_the_queues_and_all_tasks_end(system: System, tmp_path: Path, which: str) -> None:
    code = unpacked(earlier(which), tmp_path / "earlier")
    old = [system.start_in(code, "firmq", part, WORKER_EXECUTORS="2") for part in ("worker", "housekeeper")]
    new = [system.start("worker", WORKER_EXECUTORS="2"), system.start_housekeeper()]
    wait_until(lambda: len(system.workers.all()) == 2, f"both announce themselves\n{system.logs()}", 60)
    assert {Path(f"/proc/{process.pid}/cwd").resolve() for process in old} == {code}
    failing = system.submit_many([("fail", '{"message": "as asked"}')] * 40, retry={"max_retries": 1})
    ids = list(failing)

    def both_have_run_some() -> bool:
        nonlocal ids
        ids += system.submit_many([("slowly", '{"seconds": 0.01}')] * 20)
        time.sleep(0.1)
        return all(info.completed > 20 for info in system.workers.all())

    wait_until(both_have_run_some, "both take their part", 60)
    old[0].terminate()
    ids += system.submit_many([("slowly", '{"seconds": 0.01}')] * 200)
    counts = system.all_ended()
    assert counts[TaskState.COMPLETED] == len(ids) - len(failing)
    assert counts[TaskState.FAILED] == len(failing)
    attempts = [attempt for each in ids for attempt in system.records.get(each).attempts]
    assert len({attempt.worker for attempt in attempts}) == 2
    assert len(attempts) == len(ids) + len(failing)
    assert Outcome.LOST not in {attempt.outcome for attempt in attempts}
    assert old[0].wait(60) == 0
    assert all(process.poll() is None for process in (old[1], *new))
