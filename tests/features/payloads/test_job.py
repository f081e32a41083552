"""The job `payloads` removes what no task needs, and nothing else, whatever dies or is away."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from redis import Redis

from firmq.shared import failpoints
from firmq.shared.domain.payload import PayloadReference
from firmq.shared.domain.task import NewTask, TaskState
from firmq.shared.features.payloads.stores import open_payload_store
from firmq.shared.stores import maintenance
from firmq.shared.stores.dead_letters import purge
from firmq.shared.stores.locks import FreeLock
from firmq.shared.stores.payloads import Payloads, PayloadStore
from firmq.shared.stores.tasks import Records
from firmq.worker.features.payloads import job
from tests.features.payloads.stores import payload_store_url
from tests.support.harness import System, wait_until
from tests.support.keys import keys
from tests.support.store import Store, store_on

DAY = 86_400.0
HELD = FreeLock("payloads")


@pytest.fixture(params=["folder", "bucket"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with payload_store_url(request.param, tmp_path) as address:
        yield address


class Pass:
    """A store of payloads, and the job at a time of the test's choice."""

    def __init__(self, store: Store, payload_store: PayloadStore, records: Records | None = None) -> None:
        self.store = store
        self.objects = payload_store
        self.payloads = Payloads(payload_store, 1024)
        self.after = 0.0
        self.job = job.Payloads(
            store.scripts, payload_store, records or store.records, timedelta(minutes=10), self.clock
        )

    def clock(self) -> float:
        return max((at for _, at in self.objects.objects()), default=0.0) + self.after

    def submit(self, task_id: str) -> PayloadReference:
        """A task with a payload."""
        reference = self.payloads.keep(task_id, b'"large"')
        self.store.queues.submit([NewTask(id=task_id, type="noop", data=reference, queue="normal")])
        return reference

    def end(self, task_id: str, state: str = "completed") -> None:
        assert self.store.claim(10, f"of-{task_id}")
        assert self.store.report(task_id, state, f"of-{task_id}")

    def run(self, after: float = DAY) -> list[str]:
        """The tasks that have payloads after a pass."""
        self.after = after
        more = True
        while more:
            more = self.job.run(HELD).more
        return [each.partition("/")[2].partition(".")[0] for each, _ in self.objects.objects() if "/" in each]


@pytest.fixture
def work(redis_client: Redis, url: str) -> Pass:
    found = open_payload_store(url)
    assert found
    return Pass(store_on(redis_client), found)


def test_a_payload_is_removed_with_the_record_of_its_task(work: Pass) -> None:
    for each in ("ended", "runs", "waits"):
        work.submit(each)
    assert work.store.claim(2) == ["ended", "runs"]
    assert work.store.report("ended", "completed")
    assert sorted(work.run()) == ["ended", "runs", "waits"]
    maintenance.prune(work.store.scripts, TaskState.COMPLETED, 0, 10)
    assert sorted(work.run()) == ["runs", "waits"]
    assert work.job.removed == 1


def test_a_payload_without_a_task_is_kept_for_an_hour(work: Pass) -> None:
    work.payloads.keep("crashed", b"[]")
    assert work.run(after=3590) == ["crashed"]
    assert work.run(after=3610) == []


def test_a_deleted_task_that_can_be_restored_keeps_its_payload(work: Pass) -> None:
    reference = work.submit("deleted")
    work.end("deleted", "failed")
    assert purge(work.store.scripts, TaskState.FAILED, ["deleted"], timedelta(hours=1)) == [("failed", True)]
    assert work.run() == ["deleted"]
    work.store.queues.restore("deleted")
    assert work.payloads.load(reference) == b'"large"'
    purge(work.store.scripts, TaskState.FAILED, ["deleted"], timedelta(hours=1))
    work.store.redis.delete(keys.deleted("deleted"))  # its time is over
    assert work.run() == []


def test_other_objects_are_left_alone(work: Pass) -> None:
    work.objects.put("ab/notes.txt", b"mine")
    work.run()
    assert work.objects.get("ab/notes.txt") == b"mine"


def test_an_unfinished_copy_is_removed_in_time(work: Pass) -> None:
    work.objects.put(f"{PayloadReference.to('dead', b'').name}.0123abcd", b"half")
    assert work.run() == []


def test_a_pass_is_made_in_bounded_runs(work: Pass, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "BATCH", 4)
    for at in range(10):
        work.payloads.keep(f"orphan-{at}", b"[]")
    work.submit("kept")
    work.after = DAY
    runs = [work.job.run(HELD)]
    while runs[-1].more:
        runs.append(work.job.run(HELD))
    assert max(each.done for each in runs) <= 4
    assert sum(each.done for each in runs) == 10
    assert work.run() == ["kept"]


@pytest.mark.parametrize("lost", [True, False])
def test_a_store_of_other_data_is_left_alone(work: Pass, lost: bool) -> None:
    work.submit("task")
    assert work.run() == ["task"]
    if lost:
        work.store.redis.flushall()
    else:
        work.store.redis.set(keys.PAYLOAD_STORE, "of another system")
        work.store.redis.delete(keys.rq_job("task"))
    assert work.run() == ["task"]
    assert (work.job.failures, "names other data" in work.job.error) == (1, True)
    work.objects.delete(job.MARK)
    assert work.run() == []
    assert work.job.error == ""


def test_a_store_that_is_away_costs_one_run(redis_client: Redis, tmp_path: Path) -> None:
    folder = tmp_path / "payloads"
    found = open_payload_store(f"file://{folder}")
    assert found
    work = Pass(store_on(redis_client), found)
    assert not work.job.run(HELD).more
    assert (work.job.failures, "is mounted" in work.job.error) == (1, True)
    folder.mkdir()
    work.payloads.keep("orphan", b"[]")
    assert work.run() == []


def test_a_housekeeper_killed_in_a_pass_leaves_the_rest_to_the_next(system: System, tmp_path: Path) -> None:
    folder, flag = tmp_path / "payloads", tmp_path / "flag"
    folder.mkdir()
    found = Payloads(open_payload_store(f"file://{folder}"), 1024)
    kept = found.keep(system.submit("noop"), b"[]")
    for at in range(5):
        found.keep(f"orphan-{at}", b"[]")
    for each in folder.rglob("*"):
        os.utime(each, (1, 1))
    settings = {"PAYLOAD_STORE": f"file://{folder}", "HOUSEKEEPER_PAYLOADS_INTERVAL": "0.1"}
    killed = system.start_housekeeper(**settings, **{failpoints.VARIABLE: f"housekeeper.between-batches:1:kill:{flag}"})
    wait_until(lambda: killed.poll() is not None, "it was killed after the first removal")
    system.start_housekeeper(**settings)

    def left() -> list[str]:
        return [each.name for each in folder.rglob("*.*")]

    wait_until(lambda: left() == [kept.name.partition("/")[2]], "only the payload of the task is left")
