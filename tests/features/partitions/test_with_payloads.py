"""Several partitions share one payload store: what a task in any of them needs is kept."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from firmq.shared.config.settings import Settings
from firmq.shared.config.stores import Place
from firmq.shared.domain.store_number import id_suffix
from firmq.shared.domain.task import NewTask, TaskState, new_task_id
from firmq.shared.features.partitions.settings import Partitions
from firmq.shared.features.payloads.stores import open_payload_store
from firmq.shared.redis.client import connect, raw
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores import maintenance
from firmq.shared.stores.locks import FreeLock
from firmq.shared.stores.payloads import Payloads, PayloadStore
from firmq.shared.stores.queues import Queues
from firmq.shared.stores.tasks import Records
from firmq.worker.features.payloads import job
from firmq.worker.housekeeping.main import build
from tests.support.clock import FakeClock
from tests.support.store import WEIGHTS, Store

DAY = 86_400.0
HELD = FreeLock("payloads")
NOWHERE = "redis://127.0.0.1:1/0"


class Shared:
    """A payload store, tasks in three partitions, and the jobs `payloads` of their housekeepers, a day later."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = Settings.model_validate({**settings.model_dump(), "payload_store": f"file://{folder}"}).stores
        self.stores: dict[int, Store] = {}
        for number, own in self.settings.items():
            redis, clock = connect(own.store_url), FakeClock()
            scripts = Scripts(redis, clock)
            self.stores[number] = Store(
                redis, clock, scripts, Queues(scripts, WEIGHTS), Records(scripts, list(WEIGHTS))
            )
        self.scripts = {number: store.scripts for number, store in self.stores.items()}
        found = open_payload_store(f"file://{folder}")
        assert found
        self.objects: PayloadStore = found
        self.payloads = Payloads(found, 0)
        self.jobs = self.new_jobs(self.scripts)

    def new_jobs(self, partitions: dict[int, Scripts]) -> dict[int, job.Payloads]:
        """The job of each housekeeper that has one."""
        found = {}
        for number, scripts in partitions.items():
            others = {f"partition {other}": each for other, each in partitions.items() if other != number}
            place = Place(stores=Partitions({each: self.settings[each] for each in partitions}), number=number)
            parts = build(self.settings[number], scripts, None, others, place)
            for each in parts.runner.jobs:
                if isinstance(each, job.Payloads):
                    each.clock = lambda: time.time() + DAY
                    found[number] = each
        return found

    def new(self, number: int) -> tuple[str, str]:
        """Submits a task with a payload to a partition. Returns its id, and the name of the payload."""
        task_id = new_task_id(id_suffix(number))
        reference = self.payloads.keep(task_id, b'"large"')
        self.stores[number].queues.submit([NewTask(id=task_id, type="noop", data=reference, queue="normal")])
        return task_id, reference.name

    def end(self, number: int, task_id: str) -> None:
        assert self.stores[number].claim(10, token=task_id) == [task_id]
        assert self.stores[number].report(task_id, "completed", token=task_id) == 1

    def remove_ended(self, number: int) -> None:
        assert maintenance.prune(self.scripts[number], TaskState.COMPLETED, 0, 10).removed == 1

    def orphan(self) -> str:
        """Writes a payload that no task needs, and returns its name."""
        return self.payloads.keep(new_task_id(id_suffix(1)), b"[]").name

    def names(self) -> set[str]:
        """The payloads that there are."""
        return {name for name, _ in self.objects.objects() if name != job.MARK}

    def run(self) -> set[str]:
        """The payloads after a run of each job."""
        for each in self.jobs.values():
            each.run(HELD)
        return self.names()

    def marked(self) -> set[bytes]:
        """The data that the store names."""
        return set((self.objects.get(job.MARK) or b"").split(b"\n"))

    def mark_of(self, number: int) -> bytes:
        """What names the data of a partition."""
        scripts = self.scripts[number]
        return raw(scripts.redis.get(scripts.keys.PAYLOAD_STORE))


@pytest.fixture
def shared(three: Settings, tmp_path: Path) -> Iterator[Shared]:
    (tmp_path / "payloads").mkdir()
    found = Shared(three, tmp_path / "payloads")
    yield found
    for each in found.stores.values():
        each.redis.close()


def test_payloads_of_tasks_that_wait_in_any_partition_are_kept(shared: Shared) -> None:
    kept = {shared.new(number)[1] for number in (0, 1, 2)}
    shared.orphan()
    assert shared.run() == kept
    assert list(shared.jobs) == [0], "one housekeeper has the job"
    assert (shared.jobs[0].removed, shared.jobs[0].error) == (1, "")


def test_the_lowest_number_has_the_job(shared: Shared) -> None:
    assert list(shared.new_jobs({number: shared.scripts[number] for number in (1, 2)})) == [1]


def test_a_payload_is_removed_with_the_record_of_a_task_in_another_partition(shared: Shared) -> None:
    task, name = shared.new(1)
    shared.end(1, task)
    assert shared.run() == {name}
    shared.remove_ended(1)
    assert shared.run() == set()


@pytest.mark.parametrize("in_a_pass", [False, True])
def test_nothing_is_removed_while_a_partition_is_away(
    shared: Shared, in_a_pass: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = shared.jobs[0]
    everywhere = first.others
    for _ in range(3):
        shared.orphan()
    if in_a_pass:
        monkeypatch.setattr(job, "BATCH", 1)
        assert first.run(HELD).more
    left = shared.names()
    assert len(left) >= 2
    with connect(NOWHERE, timeout=0.2, retries=0) as nowhere:
        first.others = {**everywhere, "partition 2": Scripts(nowhere)}
        assert shared.run() == left
    assert (first.failures, first.error.startswith("partition 2: ")) == (1, True)
    monkeypatch.undo()
    first.others = everywhere
    assert shared.run() == set()
    assert (first.removed, first.error) == (3, "")


def test_the_store_names_the_data_of_each_partition(shared: Shared) -> None:
    shared.run()
    assert shared.marked() == {shared.mark_of(number) for number in (0, 1, 2)}


@pytest.mark.parametrize("number", [0, 2])
def test_partitions_are_added_to_the_mark_of_a_store(shared: Shared, number: int) -> None:
    """It names the single server that there was, or any partition of an earlier version."""
    single = job.Payloads(
        shared.scripts[number], shared.objects, Records(shared.scripts[number], ()), timedelta(minutes=10)
    )
    single.run(HELD)
    assert shared.marked() == {shared.mark_of(number)}
    shared.orphan()
    assert shared.run() == set()
    assert len(shared.marked()) == 3
    shared.orphan()
    before = shared.names()
    single.clock = lambda: time.time() + DAY
    single.run(HELD)
    assert shared.names() == before, "one that knows a single partition removes nothing"
    assert "names other data" in single.error


@pytest.mark.parametrize("number", [0, 1])
def test_nothing_is_removed_when_a_partition_has_lost_its_data(shared: Shared, number: int) -> None:
    _, name = shared.new(1)
    shared.run()
    for key in shared.scripts[number].redis.scan_iter(f"{shared.scripts[number].keys.prefix}*"):
        shared.scripts[number].redis.delete(key)
    other = shared.orphan()
    assert shared.run() == {name, other}
    assert "names other data" in shared.jobs[0].error
    shared.objects.delete(job.MARK)
    assert shared.run() == ({name} if number == 0 else set())
    assert shared.jobs[0].error == ""


def test_nothing_is_removed_from_the_store_of_another_system(shared: Shared) -> None:
    shared.objects.put(job.MARK, b"of another system")
    other = shared.orphan()
    assert shared.run() == {other}
    assert shared.marked() == {b"of another system"}


def test_nothing_is_removed_for_a_partition_that_is_not_in_the_list(shared: Shared) -> None:
    shared.run()
    _, name = shared.new(2)
    shared.jobs = shared.new_jobs({number: shared.scripts[number] for number in (0, 1)})
    assert shared.run() == {name}
    assert "a server was removed permanently" in shared.jobs[0].error
