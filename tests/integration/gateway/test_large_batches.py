"""A batch that comes in many requests, to gateways that are processes: large, and with a gateway that is killed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from firmq.shared.domain.task import TaskState
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.task_types import TaskType, TaskTypes
from firmq.shared.stores.tasks import Records
from tests.integration.gateway.driving import QUEUES
from tests.integration.gateway.test_server import Running, start
from tests.support.figures import JUDGED, judge
from tests.support.harness import System
from tests.support.keys import keys

PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
LARGE = 100_000 if JUDGED else 28_000
TIMES = (LARGE - 4000) // 4000


@pytest.fixture
def mortal(system: System, redis_client: Redis) -> Running:
    """A gateway that a test may stop and kill."""
    TaskTypes(redis_client).publish([TaskType(name="process", schema={})])
    return start(system)


def post(gateway: Running, path: str, body: Any, key: str = "") -> Any:
    """The answer to one request. Raises HTTPException or OSError when the gateway is gone."""
    connection = HTTPConnection("127.0.0.1", gateway.port, timeout=60)
    headers = {"Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})}
    connection.request("POST", path, json.dumps(body), headers)
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def answers(gateway: Running, batch: str, first: int, last: int) -> Iterator[Any]:
    """The outcome of each task, for as long as the gateway lives."""
    for at in range(first, last, 1000):
        tasks = [{"type": "process", "data": {"n": n}} for n in range(at, min(last, at + 1000))]
        try:
            yield from post(gateway, f"/batches/{batch}/tasks", {"start": at, "tasks": tasks})["items"]
        except (HTTPException, OSError):
            return


def resident(pids: list[int]) -> int:
    """Megabytes of memory of the largest of these processes."""
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids]
    return max(pages) * PAGE >> 20


def processor_seconds(pids: list[int]) -> float:
    times = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13] for pid in pids]
    return sum(int(part) for pair in times for part in pair) / TICKS


def test_a_large_batch_needs_little_time_and_no_memory(mortal: Running, redis_client: Redis) -> None:
    batch = post(mortal, "/batches", {})["batch_id"]
    workers, highest = mortal.workers, 0
    begun = processor_seconds(workers) + redis_client.info("cpu")["used_cpu_user"]
    for _ in answers(mortal, batch, 0, 4000):
        pass
    before = resident(workers)
    spent = processor_seconds(workers) + redis_client.info("cpu")["used_cpu_user"]
    first = spent - begun
    for n, answer in enumerate(answers(mortal, batch, 4000, LARGE), 4000):
        assert (answer["index"], answer["status"]) == (n, "pending")
        if n % 5000 == 0:
            highest = max(highest, resident(workers))
    spent = processor_seconds(workers) + redis_client.info("cpu")["used_cpu_user"] - spent
    assert post(mortal, f"/batches/{batch}/close", None)["total"] == LARGE
    print(f"{spent:.1f} processor seconds of gateway and Redis, {before} → {highest} MB")
    assert spent < 3 * TIMES * first, "so many times more take about so many times as long"
    judge(f"processor time of {LARGE - 4000:,} tasks of a batch", spent, 20)
    assert highest - before < 20


def test_a_killed_gateway_loses_and_repeats_no_batch_task(mortal: Running, system: System, redis_client: Redis) -> None:
    total, said = 20_000, {}
    batch = post(mortal, "/batches", {"name": "import"}, "import")["batch_id"]
    for answer in answers(mortal, batch, 0, total):
        said[answer["index"]] = answer["task_id"]
        if len(said) == total // 2 + 1:
            for pid in [mortal.process.pid, *mortal.workers]:
                os.kill(pid, signal.SIGKILL)
    assert total // 2 < len(said) < total, "it was killed half way"
    records = Records(Scripts(redis_client), QUEUES)
    assert records.counts()[TaskState.PENDING] >= len(said)
    assert all(redis_client.exists(keys.rq_job(task_id)) for task_id in said.values())
    # From an earlier place on, so that stored tasks come again.
    other = start(system)
    assert post(other, "/batches", {"name": "import"}, "import")["batch_id"] == batch
    again = {answer["index"]: answer["task_id"] for answer in answers(other, batch, len(said) - 500, total)}
    assert len(again) == total - len(said) + 500
    assert records.counts()[TaskState.PENDING] == total
    assert len({*said.values(), *again.values()}) == total
