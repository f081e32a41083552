"""A system on a real cluster: tasks run, and a master that dies is replaced without a loss."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firmq import Queue
from firmq.shared.config.redis_address import completed
from firmq.shared.config.settings import Settings
from firmq.shared.domain.store_number import store_of_id
from firmq.shared.errors import StoreRefused
from firmq.shared.redis.client import connect
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.workers import NO_TYPES
from firmq.shared.submission.problems import Problem
from tests.support import one_slot
from tests.support.figures import judge
from tests.support.harness import System, running_system, wait_until
from tests.support.redis_cluster import Cluster, running_cluster
from tests.support.store import store_on

RECOVERY = 15.0
"""Seconds without the dead master, where the machine does nothing else."""
PATIENCE = 90.0


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster whose nodes a test may kill."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    with running_cluster(folder) as running:
        yield running


@pytest.fixture
def on_cluster(own_cluster: Cluster, tmp_path: Path) -> Iterator[System]:
    settings = Settings(redis_url=own_cluster.url())
    (tmp_path / "logs").mkdir()
    with (
        connect(settings.stores[0].store_url) as client,
        running_system(client, own_cluster.url(), tmp_path / "logs") as system,
    ):
        system.start("worker", WORKER_EXECUTORS="4")
        system.start("housekeeper")
        wait_until(lambda: all(map(_types_known, settings.stores.values())), "the types are published everywhere")
        yield system


def _types_known(own: Settings) -> bool:
    with connect(own.store_url) as redis:
        return bool({*redis.hvals(Scripts(redis).keys.TYPES_OF)} - {NO_TYPES.encode()})


def test_a_master_that_dies_under_load_loses_nothing(own_cluster: Cluster, on_cluster: System) -> None:
    accepted: list[str] = []
    longest, ended = [0.0], threading.Event()

    def submit() -> None:
        with Queue(own_cluster.url(), submit_replicas=1, patience=PATIENCE) as queue:
            while not ended.is_set():
                begun = time.monotonic()
                try:
                    accepted.append(queue.submit("echo", len(accepted)).task_id)
                except Problem as problem:
                    raise AssertionError(f"not accepted within {PATIENCE} s: {problem}") from None
                longest[0] = max(longest[0], time.monotonic() - begun)
                time.sleep(0.005)

    failures: list[Any] = []
    threads = [threading.Thread(target=_noting, args=(submit, failures)) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(2)
    killed = own_cluster.master_of(1)
    killed.kill()
    time.sleep(5)
    killed.start()  # as its supervisor does: without another replica, SUBMIT_REPLICAS=1 accepts nothing there
    time.sleep(6)
    ended.set()
    for thread in threads:
        thread.join()
    assert failures == []
    judge("a submission while a master dies", longest[0], RECOVERY)
    assert {store_of_id(each) or 0 for each in accepted} == {0, 1, 2}
    with Queue(own_cluster.url(), patience=60) as queue:
        for at, each in enumerate(accepted):
            assert queue.wait(each, timeout=60).status == "completed", f"{at} of {len(accepted)}"


def _noting(call: Any, failures: list[Any]) -> None:
    try:
        call()
    except Exception as error:
        failures.append(error)


def test_a_script_waits_for_a_cluster_that_is_down(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its error says nothing about the data: a retry may succeed, and nothing is to be quarantined."""
    folder = tmp_path / "node"
    folder.mkdir(mode=0o700)
    with (
        one_slot.node(folder) as node,
        connect(completed(node.url, key_prefix=one_slot.NODE_PREFIX), timeout=5, retries=0) as client,
    ):
        store = store_on(client)
        store.submit()
        client.config_set("cluster-require-full-coverage", "yes")  # it is down without all slots, and looks again now:
        client.execute_command("CLUSTER", "ADDSLOTS", 0)
        with pytest.raises(StoreRefused, match="cluster is down"):
            store.submit()
    assert "corrupt" not in caplog.text


def test_an_address_of_a_cluster_says_what_it_needs() -> None:
    with pytest.raises(ValueError, match="needs \\?partitions="):
        Settings(redis_url="redis+cluster://a:1,b:2")
    with pytest.raises(ValueError, match="must look like"):
        Settings(redis_url="redis+cluster://a:1/0?partitions=3")
    found = Settings(redis_url="redis+cluster://a:1,b:2?partitions=2", key_prefix="shop")
    assert [own.store_url for own in found.stores.values()] == [
        f"redis+cluster://a:1,b:2?key_prefix=shop%3A%7Bfq{number}%7D&store={number}" for number in range(2)
    ]
