"""Workers keep large data and results in the payload store; while it is away nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from firmq.shared.domain.payload import PayloadReference
from firmq.shared.domain.task import NewTask, Parent, TaskDetail, TaskState, Webhook, new_task_id
from firmq.shared.features.payloads.stores import open_payload_store
from firmq.shared.stores.payloads import Payloads
from firmq.shared.stores.tasks import Records
from tests.features.payloads.stores import payload_store_url
from tests.support.harness import System, running_system, wait_until
from tests.support.receiver import SECRET, receiving

MODULES = "tests.support.handlers,tests.features.payloads.handlers"
LARGE = "x" * 5000


class Work:
    """A system with a worker, and a store of payloads."""

    def __init__(self, system: System, url: str) -> None:
        self.system = system
        self.payloads = Payloads(open_payload_store(url), 1024)
        system.records = self.records = Records(system.scripts, system.records.queues, self.payloads)

    def submit(self, kind: str, data: str, **options: Any) -> str:
        task_id = new_task_id()
        stored = self.payloads.data_of(task_id, data)
        new = NewTask(id=task_id, type=kind, data=stored, queue="normal", **options)
        assert self.system.queues.submit([new])[0].stored
        return task_id

    def ended(self, task_id: str) -> TaskDetail:
        return self.system.ended(task_id)


@pytest.fixture(params=["folder", "bucket"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with payload_store_url(request.param, tmp_path) as address:
        yield address


@pytest.fixture
def work(redis_client: Redis, redis_url: str, tmp_path: Path, url: str) -> Iterator[Work]:
    settings = {"PAYLOAD_STORE": url, "PAYLOAD_THRESHOLD": "1024", "TASK_MODULES": MODULES}
    with running_system(redis_client, redis_url, tmp_path, **settings) as system:
        system.start_worker()
        system.start_housekeeper(PAYLOAD_STORE="")
        yield Work(system, url)


@pytest.mark.parametrize("kind", ["echo", "echo-in-loop", "echo-in-thread"])
def test_large_data_and_results_pass_through_every_kind_of_executor(work: Work, kind: str) -> None:
    task = work.submit(kind, f'["{LARGE}", "é"]')
    assert work.ended(task).result == [LARGE, "é"]
    stored = work.records.record(task)
    assert isinstance(stored.data, PayloadReference)
    assert isinstance(stored.result, PayloadReference)
    small = work.submit(kind, '"small"')
    assert work.ended(small).result == "small"
    assert work.records.record(small).result == "small"


def test_a_child_gets_large_results_of_its_parents(work: Work) -> None:
    parents = [work.submit("echo", f'"{LARGE}{at}"') for at in range(3)]
    child = work.submit("gather", "null", parents=tuple(Parent(task_id=each) for each in parents))
    assert work.ended(child).result == {each: f"{LARGE}{at}" for at, each in enumerate(parents)}


@pytest.fixture
def in_folder(redis_client: Redis, redis_url: str, tmp_path: Path) -> Iterator[tuple[Work, Path]]:
    folder = tmp_path / "payloads"
    folder.mkdir()
    url = f"file://{folder}"
    settings = {"PAYLOAD_STORE": url, "PAYLOAD_THRESHOLD": "1024", "TASK_MODULES": MODULES, "MAX_RETRIES": "1000"}
    settings |= {"INITIAL_RETRY_DELAY": "0.1", "MAX_RETRY_DELAY": "0.2", "WEBHOOK_SECRETS": SECRET}
    with running_system(redis_client, redis_url, tmp_path, **settings) as system:
        system.start_housekeeper(PAYLOAD_STORE="")
        yield Work(system, url), folder


def has_failed_with(work: Work, task_id: str, reason: str) -> bool:
    attempts = work.records.record(task_id).attempts
    return any(each.error and reason in each.error.message for each in attempts)


@pytest.mark.parametrize("kind", ["echo", "echo-in-loop"])
def test_an_attempt_without_its_data_is_retried(in_folder: tuple[Work, Path], kind: str) -> None:
    work, folder = in_folder
    task = work.submit(kind, f'"{LARGE}"')
    away = folder.rename(folder.with_name("away"))
    work.system.start_worker()
    wait_until(lambda: has_failed_with(work, task, "is mounted"), "an attempt failed for the store")
    away.rename(folder)
    found = work.ended(task)
    assert (found.summary.state, found.result) == (TaskState.COMPLETED, LARGE)
    assert found.attempts[0].error
    assert found.attempts[0].error.type == "PayloadUnavailable"


@pytest.mark.parametrize("kind", ["enlarge", "enlarge-in-loop"])
def test_an_attempt_whose_result_cannot_be_stored_is_retried(in_folder: tuple[Work, Path], kind: str) -> None:
    work, folder = in_folder
    away = folder.rename(folder.with_name("away"))
    work.system.start_worker()
    task = work.submit(kind, '"x"')
    wait_until(lambda: has_failed_with(work, task, "is mounted"), "an attempt failed for the store")
    away.rename(folder)
    assert work.ended(task).result == LARGE


def test_changed_data_is_never_run(in_folder: tuple[Work, Path]) -> None:
    work, _ = in_folder
    task = work.submit("echo", f'"{LARGE}"')
    reference = work.records.record(task).data
    assert work.payloads.store
    work.payloads.store.put(reference.name, b'"changed"')
    work.system.start_worker()
    wait_until(lambda: work.records.state(task).ended, "the task ended")
    found = work.records.record(task)
    assert found.summary.state is TaskState.FAILED
    assert found.summary.error
    assert "SHA-256 differs" in found.summary.error.message


def test_a_webhook_leaves_a_large_result_out(in_folder: tuple[Work, Path]) -> None:
    work, _ = in_folder
    with receiving() as receiver:
        work.system.start_worker(WEBHOOK_ALLOW="127.0.0.1")
        work.submit("enlarge", '"x"', webhook=Webhook(url=receiver.url))
        wait_until(receiver.bodies, "the end of the task was delivered")
        [body] = receiver.bodies()
    assert (body["result"], body["result_left_out"]) == (None, True)
