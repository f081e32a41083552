"""What a handler leaves behind in its executor reaches no other task."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from shared.tasks import Outcome
from tests.harness import System, wait_until


@pytest.mark.parametrize(("how", "limit"), [("sleep", 30.0), ("block", 2.0)])
def test_a_coroutine_that_swallows_its_cancellation_holds_up_nothing(system: System, how: str, limit: float) -> None:
    worker = system.start_worker(WORKER_EXECUTORS="1", LEASE_TIME="60", KILL_GRACE="30")
    [before] = system.executors(worker)
    first = system.submit("unending", json.dumps({"how": how}), timeout=timedelta(seconds=limit))
    behind = system.submit_many([("async", "0")] * 5)
    assert system.ended(first, 20).result == "False"
    assert [system.ended(each).result for each in behind] == ["awaited"] * 5
    wait_until(lambda: before not in system.executors(worker), "the executor is gone")
    named = "coroutines that do not end when they are cancelled (unending.<locals>.sleep_on)"
    assert (
        f"handler unending left behind {named if how == 'sleep' else 'work cut off by its time limit'}" in system.logs()
    )
    assert all(len(system.records.get(each).attempts) == 1 for each in (first, *behind))


@pytest.mark.parametrize("how", ["close", "run"])
def test_an_event_loop_that_a_handler_closed_breaks_no_task_after_it(system: System, how: str) -> None:
    system.start_worker(WORKER_EXECUTORS="1", LEASE_TIME="60", MAX_RETRIES="0")
    kinds = [("async", "0"), ("own-loop", json.dumps({"how": how})), ("async", "0")]
    assert [system.ended(system.submit(*each)).result for each in kinds] == ["awaited", how, "awaited"]


@pytest.mark.parametrize("stopped_by", ["limit", "cancelling"])
def test_a_task_that_is_stopped_within_an_import_leaves_no_broken_module(
    system: System, tmp_path: Path, stopped_by: str
) -> None:
    slow = tmp_path / "slow"
    slow.touch()
    (tmp_path / "touchy.py").write_text(f"""
import sys, time
from pathlib import Path
assert not hasattr(sys, "touched"), "it cannot be initialised twice"
sys.touched = True
Path({str(tmp_path / "begun")!r}).touch()
while Path({str(slow)!r}).exists():
    time.sleep(0.01)
""")
    worker = system.start_worker(WORKER_EXECUTORS="1", LEASE_TIME="60", MAX_RETRIES="0", PYTHONPATH=str(tmp_path))
    [before] = system.executors(worker)
    timeout = timedelta(seconds=0.5 if stopped_by == "limit" else 60)
    stopped = system.submit("import", '{"name": "touchy"}', timeout=timeout)
    behind = system.submit("noop")
    wait_until((tmp_path / "begun").exists, "the import began")
    if stopped_by == "cancelling":
        system.queues.cancel(stopped, "")
    [attempt] = system.ended(stopped).attempts
    assert attempt.outcome is (Outcome.TIMED_OUT if stopped_by == "limit" else Outcome.CANCELLED)
    slow.unlink()
    assert system.ended(system.submit("import", '{"name": "touchy"}')).result == "touchy"
    assert [attempt.outcome for attempt in system.ended(behind).attempts] == [Outcome.COMPLETED]
    wait_until(lambda: before not in system.executors(worker), "the executor is gone")
