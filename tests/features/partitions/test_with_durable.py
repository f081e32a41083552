"""Durable functions with three servers."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from firmq.shared.redis.client import connect, text
from firmq.shared.redis.scripts import Scripts
from tests.features.partitions.conftest import Servers, three_servers
from tests.features.partitions.test_parts import place, queue_of, types_known
from tests.support.harness import wait_until

__all__ = ["three_servers"]


def test_steps_are_stored_in_the_partition_of_their_task(three_servers: Servers, tmp_path: Path) -> None:
    system = three_servers.system
    system.start("worker", WORKER_EXECUTORS="1", TASK_MODULES="tests.features.durable.handlers_children")
    system.start("housekeeper")
    wait_until(lambda: types_known(three_servers), "the types are published everywhere")
    with ExitStack() as stack, queue_of(three_servers) as queue:
        stores = [Scripts(stack.enter_context(connect(each.url))) for each in three_servers.servers]
        done = set()
        for _ in range(40):
            folder = tmp_path / f"flow-{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            task = queue.submit("family", {"folder": str(folder), "many": 2})
            queue.wait(task.task_id, timeout=120)
            assert queue.get(task.task_id).status == "completed", queue.get(task.task_id)
            for scripts in stores:
                children = scripts.redis.keys("rq:job:*")
                assert {place(text(each).removeprefix("rq:job:")) for each in children} <= {stores.index(scripts)}
            done.add(place(task.task_id))
            if done == {0, 1, 2}:
                return
    raise AssertionError(f"only in {done}")
