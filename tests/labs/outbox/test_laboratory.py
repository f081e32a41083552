"""Some seconds of the laboratory; `python -m tests.labs.outbox` runs a thousand kills."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.labs.outbox.creations import creations
from tests.support.harness import ROOT
from tests.support.keys import keys


def test_each_committed_row_is_one_task_whatever_is_killed() -> None:
    command = [sys.executable, "-m", "tests.labs.outbox", "--kills", "40"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "40 kills" in done.stdout or "41 kills" in done.stdout


def test_a_task_that_was_created_twice_is_counted_twice(tmp_path: Path) -> None:
    def command(*words: str) -> bytes:
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(each), each.encode()) for each in words)

    (tmp_path / "appendonlydir").mkdir()
    create = command("HSET", keys.rq_job("one"), "state", "pending", "created_at", "now")
    change = command("HSET", keys.rq_job("one"), "state", "created_at")
    (tmp_path / "appendonlydir" / "appendonly.aof.1.incr.aof").write_bytes(
        b"#TS:1\r\n" + create + change + create + create[:-20]
    )
    assert creations(tmp_path) == {"one": 2}
