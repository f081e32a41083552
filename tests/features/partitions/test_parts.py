"""Workers, housekeepers and direct submission with three servers, of which one goes away."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from firmq import AsyncQueue, Queue, new_task
from firmq.shared.config.settings import Settings
from firmq.shared.domain.store_number import store_of_id
from firmq.shared.redis.client import connect
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.pauses import Pauses, of_type
from firmq.shared.stores.workers import NO_TYPES
from firmq.shared.submission.problems import Problem
from tests.features.partitions.conftest import Servers
from tests.support.figures import judge, judge_since
from tests.support.harness import wait_until

LIMIT = 2.0
"""Seconds for which a queue waits for a partition that hangs."""


def place(task_id: str) -> int:
    return store_of_id(task_id) or 0


def queue_of(servers: Servers, **about: Any) -> Queue:
    return Queue(redis_partitions=tuple(each.url for each in servers.servers), **about)


def types_known(servers: Servers) -> bool:
    for number, each in enumerate(servers.servers):
        with connect(f"{each.url}?store={number}") as redis:
            if not {*redis.hvals(Scripts(redis).keys.TYPES_OF)} - {NO_TYPES.encode()}:
                return False
    return True


def test_one_worker_runs_the_tasks_of_all_partitions(three_servers: Servers) -> None:
    three_servers.system.start("worker", WORKER_EXECUTORS="2")
    wait_until(lambda: types_known(three_servers), "the types are published everywhere")
    with queue_of(three_servers) as queue:
        tasks = queue.submit_many(new_task("echo", number) for number in range(9))
        one_by_one = [queue.submit("echo", number).task_id for number in range(30)]
        assert set(map(place, one_by_one)) == {0, 1, 2}
        assert [queue.result(each, timeout=120) for each in one_by_one] == list(range(30))
        assert [queue.result(each.task_id, 120) for each in tasks if not isinstance(each, Problem)] == list(range(9))


def test_direct_submission_keeps_to_the_rules_of_the_gateway(three_servers: Servers) -> None:
    three_servers.system.start("worker", WORKER_EXECUTORS="1")
    wait_until(lambda: types_known(three_servers), "the types are published everywhere")
    with queue_of(three_servers) as queue:
        for key in "abcdef":
            first = queue.submit("echo", 1, idempotency_key=key)
            assert queue.submit("echo", 1, idempotency_key=key).task_id == first.task_id
            child = queue.submit("echo", 2, depends_on=[{"task_id": first.task_id}])
            assert place(child.task_id) == place(first.task_id)
            held = queue.submit("echo", 3, unique_key=f"{key}-held", delay=60)
            again = queue.submit("echo", 3, unique_key=f"{key}-held", on_conflict="existing")
            assert again.task_id == held.task_id
            assert queue.cancel(held.task_id).status == "cancelled"

    async def submit() -> list[Any]:
        addresses = tuple(each.url for each in three_servers.servers)
        async with AsyncQueue(redis_partitions=addresses) as queue:
            tasks = await asyncio.gather(*(queue.submit("echo", number) for number in range(60)))
            assert {place(each.task_id) for each in tasks} == {0, 1, 2}
            return [await queue.result(each.task_id, 120) for each in tasks]

    assert asyncio.run(submit()) == list(range(60))


def test_tasks_with_the_same_placement_key_depend_on_each_other(three_servers: Servers) -> None:
    three_servers.system.start("worker", WORKER_EXECUTORS="2")
    three_servers.system.start("housekeeper")
    wait_until(lambda: types_known(three_servers), "the types are published everywhere")
    addresses = tuple(each.url for each in three_servers.servers)
    with ExitStack() as stack, queue_of(three_servers) as queue:
        pauses = [Pauses(Scripts(stack.enter_context(connect(each.url)))) for each in three_servers.servers]
        for each in pauses:
            each.pause(of_type("echo"), "until their children are there")
        others = [queue.submit("echo", 0, placement_key=str(at)).task_id for at in range(30)]
        assert {place(each) for each in others} == {0, 1, 2}
        held = [queue.submit("echo", at, placement_key="order").task_id for at in range(3)]
        child = queue.submit("gather", depends_on=held, placement_key="order", unique_key="gather")
        [many] = queue.submit_many([new_task("gather", depends_on=held[::-1])])
        assert not isinstance(many, Problem)
        for each in pauses:
            each.resume(of_type("echo"))
        expected = {task_id: queue.result(task_id, 120) for task_id in held}
        assert queue.result(child.task_id, 20) == queue.result(many.task_id, 20) == expected
        elsewhere = next(each for each in others if place(each) != place(held[0]))
        with pytest.raises(Problem, match="with the same placement_key"):
            queue.submit("gather", depends_on=[held[0], elsewhere])

    async def submit() -> Any:
        async with AsyncQueue(redis_partitions=addresses) as queue:
            task = await queue.submit("gather", depends_on=held)
            return await queue.result(task.task_id, 20)

    assert asyncio.run(submit()) == expected


def test_a_partition_that_is_away_costs_only_its_own_tasks(three_servers: Servers, tmp_path: Path) -> None:
    system = three_servers.system
    worker = system.start("worker", WORKER_EXECUTORS="4")
    system.start("housekeeper")
    wait_until(lambda: types_known(three_servers), "the types are published everywhere")
    with queue_of(three_servers, patience=30) as queue:
        notes = tmp_path / "notes"
        held = [queue.submit("note", {"file": str(notes), "text": str(at), "seconds": 2}).task_id for at in range(4)]
        wait_until(notes.exists, "they run")
        three_servers.kill(1)
        begun = time.monotonic()
        others = [queue.submit("echo", number) for number in range(50)]
        assert {place(each.task_id) for each in others} == {0, 2}
        for task in others:
            queue.result(task.task_id, timeout=120)
        judge_since("50 results while one of three partitions is away", begun, 15)
        three_servers.start(1)
        for each in held:
            queue.result(each, timeout=120)
        assert queue.result(queue.submit("echo", 1).task_id, timeout=120) == 1
        wait_until(lambda: 1 in {place(queue.submit("echo", 0).task_id) for _ in range(9)}, "it gets tasks again")
    assert {"0", "1", "2", "3"} <= set(notes.read_text().split())
    assert worker.poll() is None


def test_a_partition_that_hangs_delays_the_others_once(three_servers: Servers) -> None:
    system = three_servers.system
    system.start("worker", WORKER_EXECUTORS="2")
    wait_until(lambda: types_known(three_servers), "the types are published everywhere")
    pid = three_servers.servers[2].pid or 0
    with queue_of(three_servers, patience=1, redis_timeout=LIMIT) as queue:
        queue.result(queue.submit("echo", 0).task_id, timeout=120)
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(3)
            waits, unknown = [], 0
            for number in range(40):
                begun = time.monotonic()
                try:
                    task = queue.submit("echo", number)
                except Problem:  # it was sent to the one that hangs, which may store it later
                    unknown += 1
                    continue
                assert place(task.task_id) != 2
                queue.result(task.task_id, timeout=120)
                waits.append(time.monotonic() - begun)
            assert unknown <= 4
            assert sum(wait > LIMIT for wait in waits) < len(waits) / 2, "most do not wait for the one that hangs"
            judge("nine of ten results while one of three partitions hangs", sorted(waits)[len(waits) * 9 // 10], 1.5)
        finally:
            os.kill(pid, signal.SIGCONT)


def test_a_worker_stops_in_order_while_a_partition_is_away(three_servers: Servers) -> None:
    worker = three_servers.system.start("worker", WORKER_EXECUTORS="1")
    wait_until(lambda: types_known(three_servers), "the types are published everywhere")
    three_servers.kill(2)
    time.sleep(1)
    worker.terminate()
    assert worker.wait(90) == 0


def test_a_schedule_of_the_file_is_in_one_partition(three_servers: Servers, tmp_path: Path) -> None:
    system = three_servers.system
    file = tmp_path / "settings.yml"
    names = [f"every-{number}" for number in range(6)]
    entries = {name: {"type": "noop", "interval": 1} for name in names}
    file.write_text(json.dumps({"schedules": entries}))
    system.start("worker", WORKER_EXECUTORS="1")
    system.start("housekeeper", CONFIG_FILE=str(file))
    settings = Settings.model_validate({"redis_partitions": tuple(each.url for each in three_servers.servers)})
    with ExitStack() as stack:
        all_scripts = [Scripts(stack.enter_context(connect(own.store_url))) for own in settings.stores.values()]

        def homes() -> list[int]:
            return [sum(bool(each.redis.exists(each.keys.schedule(name))) for each in all_scripts) for name in names]

        wait_until(lambda: homes() == [1] * 6, "each is in one partition")
        wait_until(lambda: all(each.redis.zcard(each.keys.TASKS) for each in all_scripts), "all of them fire")
