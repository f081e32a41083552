"""Every attempt has the APP_VERSION of the worker that ran it, however it ended."""

from __future__ import annotations

import json
import signal

from redis import Redis

from firmq.shared.domain.task import Outcome, TaskState
from tests.support.harness import System, wait_until
from tests.support.keys import keys

VERSION = "4f2a91c"


def test_every_attempt_has_the_version_that_ran_it(system: System, redis_client: Redis) -> None:
    system.start_housekeeper()
    old = system.start_worker(APP_VERSION=VERSION, LOG_FORMAT="json")
    assert [info.app_version for info in system.workers.all()] == [VERSION]
    [completed] = system.ended(system.submit("noop")).attempts
    [crashed] = system.ended(system.submit("crash", '{"how": "exit"}', retry={"max_retries": 0}), 30).attempts[:1]
    assert [completed.app_version, crashed.app_version] == [VERSION, VERSION]
    assert crashed.outcome is Outcome.CRASHED

    cut = system.submit("long-at-first", "{}")
    wait_until(lambda: system.records.state(cut) is TaskState.RUNNING, "it runs")
    old.send_signal(signal.SIGKILL)
    wait_until(lambda: system.records.get(cut).summary.state is TaskState.PENDING, "its lease has ended")
    system.start_worker(LOG_FORMAT="json")
    attempts = system.ended(cut).attempts
    assert [each.outcome for each in attempts] == [Outcome.LOST, Outcome.COMPLETED]
    assert [each.app_version for each in attempts] == [VERSION, None]
    stored = redis_client.hget(keys.rq_job(cut), "attempt:2")
    assert stored
    assert "app_version" not in json.loads(stored), "a worker without a version stores none"
    lines = [json.loads(line) for line in (system.log_dir / "worker-1.log").read_text().splitlines() if line[0] == "{"]
    assert {line.get("app_version") for line in lines} == {VERSION}
