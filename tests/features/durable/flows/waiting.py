"""What ten thousand waiting and sleeping flows cost, and how soon they go on."""

from __future__ import annotations

import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

from firmq.shared.domain.task import TaskState
from firmq.shared.features.durable.signals import Signals
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect
from tests.support.harness import System, running_system, wait_until
from tests.support.keys import keys

SIGNALS = 500
"""Flows that are woken one by one, to time each."""
LONGEST = 600.0


def measure(flows: int) -> str:
    """Returns the figures of so many flows that wait for a signal, and of as many that sleep."""
    with (
        tempfile.TemporaryDirectory(prefix="flows-") as name,
        EmbeddedRedis(data_dir=Path(name) / "redis") as server,
        connect(server.url, timeout=30) as client,
        running_system(
            client, server.url, Path(name), TASK_MODULES="tests.features.durable.handlers_children"
        ) as system,
    ):
        plain = _bytes_of(system, lambda: _scheduled(system, flows), flows)
        system.start_worker(WORKER_EXECUTORS="2")
        system.start_housekeeper()
        ids: list[str] = []
        waiting = _bytes_of(system, lambda: ids.extend(_waiting(system, flows)), flows)
        held = int(system.redis.zcard(keys.LEASES))
        woken = sorted(_woken(system, random.Random(1).sample(ids, min(SIGNALS, flows))))
        late = _sleepers(system, flows)
    at = [woken[min(len(woken) - 1, len(woken) * percent // 100)] for percent in (50, 99)]
    return (
        f"{flows} waiting flows: {held} leases held, {waiting - plain:.0f} bytes each above a scheduled task "
        f"({plain:.0f}); signal to end p50 {at[0]:.1f} ms, p99 {at[1]:.1f} ms, longest {woken[-1]:.1f} ms\n"
        f"{flows} sleeping flows, awake after their time: median {statistics.median(late):.2f} s, "
        f"longest {max(late):.2f} s"
    )


def _bytes_of(system: System, add: Callable[[], object], flows: int) -> float:
    before = int(system.redis.info("memory")["used_memory"])
    add()
    return (int(system.redis.info("memory")["used_memory"]) - before) / flows


def _scheduled(system: System, flows: int) -> None:
    for _ in range(flows // 500):
        system.submit_many([("pause", '{"seconds": null}')] * 500, delay=timedelta(days=1))


def _in_state(system: System, state: TaskState, count: int) -> None:
    wait_until(lambda: system.records.counts()[state] >= count, f"{count} are {state}", LONGEST)


def _waiting(system: System, flows: int) -> list[str]:
    ids = [each for _ in range(flows // 500) for each in system.submit_many([("pause", '{"seconds": null}')] * 500)]
    _in_state(system, TaskState.SCHEDULED, 2 * flows)
    time.sleep(1)
    return ids


def _woken(system: System, ids: Sequence[str]) -> list[float]:
    found = []
    for each in ids:
        begun = time.perf_counter()
        Signals(system.scripts).send(each, "go", 1, "Ann")
        system.records.wait(each, 30)
        found.append((time.perf_counter() - begun) * 1000)
        time.sleep(0.01)
    return found


def _sleepers(system: System, flows: int) -> list[float]:
    """Returns by how many seconds each was late; all sleep until the same moment."""
    due = time.time() + flows / 250
    data = json.dumps({"seconds": due})
    ids = [each for _ in range(flows // 500) for each in system.submit_many([("pause", data)] * 500)]
    wait_until(lambda: all(system.records.state(each).ended for each in ids[-20:]), "the last ones are awake", LONGEST)
    wait_until(lambda: system.records.counts()[TaskState.COMPLETED] >= flows, "all are awake", LONGEST)
    return [max(0.0, float(system.records.get(each).result) - due) for each in ids[:: max(1, flows // 1000)]]
