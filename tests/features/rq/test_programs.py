"""Programs that use RQ, unchanged, see what they expect while Firmq runs their jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from rq import Queue

from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect
from tests.features.rq.program import FEATURES
from tests.support.harness import ROOT, System, running_system, wait_until
from tests.support.rq_functions import ALLOWED
from tests.support.rq_versions import VERSIONS, environment

ADOPTING = {"RQ_QUEUES": "imports,mail,quiet", "RQ_ALLOW": ALLOWED, "RQ_PICKLE": "true"}


OLD, NEW = VERSIONS
SUPPORTED = [(OLD, OLD), (NEW, OLD), (NEW, NEW)]
"""RQ 3 gives jobs a status for a moment that RQ 2 cannot read, so workers are upgraded last."""


@pytest.fixture(scope="module", params=SUPPORTED, ids=lambda pair: "program {} worker {}".format(*pair))
def saw(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    """What the program saw of each feature: one run of it for each pair of versions."""
    of_program, of_worker = map(environment, request.param)
    folder = tmp_path_factory.mktemp("features")
    with (
        EmbeddedRedis(data_dir=folder / "redis") as server,
        connect(server.url, timeout=5) as redis,
        running_system(redis, server.url, folder) as system,
    ):
        system.as_shipped = bool(of_worker)
        system.start_housekeeper()
        system.start_worker(**ADOPTING, **of_worker, WORKER_EXECUTORS="2")
        command = [sys.executable, "-m", "tests.features.rq.program", server.url, min(request.param)]
        said = subprocess.run(
            command,
            env={**os.environ, **of_program},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert said.returncode == 0, said.stderr + system.logs()[-4000:]
        yield json.loads(said.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", FEATURES)
def test_a_program_sees_what_the_guide_says(saw: dict[str, object], name: str) -> None:
    if name not in saw:
        pytest.skip(f"RQ {FEATURES[name].since} has it")
    assert saw[name] == FEATURES[name].sees


@pytest.mark.parametrize("version", VERSIONS)
def test_rq_info_reads_tasks_and_adopted_jobs(system: System, redis_server: EmbeddedRedis, version: str) -> None:
    system.start_worker(**ADOPTING)
    job = Queue("imports", connection=system.redis).enqueue("operator.add", 1, 2)
    system.ended(system.submit("noop", queue="high"))
    wait_until(lambda: job.get_status() == "finished", "the job is finished")
    said = subprocess.run(
        [sys.executable, "-m", "rq.cli", "info", "--url", redis_server.url, "--raw"],
        env={**os.environ, **environment(version)}, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "queue high 0, 0 executing, 1 finished, 0 failed" in said.stdout
    assert "queue imports 0, 0 executing, 1 finished, 0 failed" in said.stdout
