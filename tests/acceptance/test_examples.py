"""The examples run as their README says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.acceptance.running import product
from tests.support.harness import ROOT, wait_until

EXAMPLE = "examples.distributed_queue"
README = (ROOT / "examples" / "distributed_queue" / "README.md").read_text()


def test_a_leader_enqueues_what_workers_of_their_own_run(tmp_path: Path) -> None:
    for mode in ("worker", "leader"):
        assert f"python -m {EXAMPLE} {mode} " in README
    with product(tmp_path, TASK_MODULES="taskqueue.worker.handlers.examples") as running:
        worker = subprocess.Popen(
            [sys.executable, "-m", EXAMPLE, "worker", "--concurrency", "2"],
            env={"PATH": "/usr/bin:/bin", "REDIS_URL": running.redis_url, "WORKER_METRICS_PORT": "0"},
            cwd=ROOT,
            stderr=subprocess.DEVNULL,
        )
        try:
            leader = [sys.executable, "-m", EXAMPLE, "leader", "--url", running.url, "--orders", "30"]
            wait_until(lambda: "count-executions" in running.api.get("/types").text, "the worker's types are known")
            done = subprocess.run(leader, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
            assert done.stdout.startswith("enqueued 30 of 30 executions as batch "), done.stderr
            assert done.stdout.endswith("100% {'completed': 29, 'failed': 1}\n")
            assert done.returncode == 1, "order 13 failed"
            failed = running.api.get("/dlq/failed-tasks").json()["items"]
            assert [each["error"]["type"] for each in failed] == ["GiveUp"]
        finally:
            worker.terminate()
            assert worker.wait(40) == 0
