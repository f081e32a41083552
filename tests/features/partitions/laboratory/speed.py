"""How many tasks a second N servers drain when Redis is what is short, and what a task costs them.

A server is held to a part of a core: it is stopped (SIGSTOP) for most of every period. A worker waits for one server at
a time, so there are as many workers as keep all of them busy.
"""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from firmq import Queue, new_task
from firmq.shared.domain.task import TaskState
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.tasks import Records
from firmq.shared.submission.problems import Problem
from tests.support.harness import WEIGHTS, running_system, wait_until

PERIOD = 0.05
"""Seconds in which a server runs once."""


MANY, FEW = (24, 1), (2, 2)
"""Workers and executors of each: for throttled servers, and for others."""


@contextmanager
def throttled(servers: list[EmbeddedRedis], part: float) -> Iterator[None]:
    """Lets each server run for a part of the time; 1: all of it."""
    if part >= 1:
        yield
        return
    ended = threading.Event()

    def hold(server: EmbeddedRedis, at: int) -> None:
        pid = server.pid or 0
        ended.wait(PERIOD * at / len(servers))
        while not ended.is_set():
            os.kill(pid, signal.SIGSTOP)
            ended.wait(PERIOD * (1 - part))
            os.kill(pid, signal.SIGCONT)
            ended.wait(PERIOD * part)

    threads = [threading.Thread(target=hold, args=(each, at)) for at, each in enumerate(servers)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def drain(partitions: int, tasks: int, part: float, workers: int, executors: int = 1) -> tuple[float, float]:
    """Tasks a second that are drained from so many servers, and microseconds of all servers for each."""
    with tempfile.TemporaryDirectory(prefix="partitions-") as name, ExitStack() as stack:
        folder = Path(name)
        servers = [
            stack.enter_context(EmbeddedRedis(data_dir=folder / f"redis-{at}", options={"appendfsync": "no"}))
            for at in range(partitions)
        ]
        addresses = tuple(each.url for each in servers)
        clients = [stack.enter_context(connect(f"{url}?store={at}", timeout=30)) for at, url in enumerate(addresses)]
        (folder / "logs").mkdir()
        system = stack.enter_context(
            running_system(
                clients[0],
                "",
                folder / "logs",
                REDIS_URL="",
                REDIS_PARTITIONS=",".join(addresses),
                TASK_MODULES="tests.features.partitions.laboratory.handlers",
                WORKER_EXECUTORS=str(executors),
                LEASE_TIME="30",
            )
        )
        first = system.start("worker")
        all_records = [Records(Scripts(each), list(WEIGHTS)) for each in clients]
        wait_until(lambda: all(each.hlen(Scripts(each).keys.TYPES_OF) for each in clients), "the types are known")
        time.sleep(1)
        first.terminate()
        first.wait()
        _fill(addresses, tasks)
        before = sum(_cpu(each) for each in servers)
        with throttled(servers, part):
            started = [system.start("worker") for _ in range(workers)]
            wait_until(lambda: _completed(all_records) >= tasks // 10, "they have begun", 120)
            begun, done = time.monotonic(), _completed(all_records)
            wait_until(lambda: _completed(all_records) >= tasks * 9 // 10, "most are done", 600)
            rate = (_completed(all_records) - done) / (time.monotonic() - begun)
            wait_until(lambda: _completed(all_records) >= tasks, "all are done", 600)
        spent = sum(_cpu(each) for each in servers) - before
        for each in started:
            each.terminate()
        return rate, spent / tasks * 1_000_000


def _fill(addresses: tuple[str, ...], tasks: int) -> None:
    with Queue(redis_partitions=addresses) as queue:
        submissions = list(queue.submissions.by_number.values())
        for submission in submissions:
            queue.submissions.free = lambda but=(), chosen=submission: chosen  # type: ignore[method-assign,misc]
            left = tasks // len(submissions)
            while left > 0:
                refused = [
                    each
                    for each in queue.submit_many([new_task("nothing", {})] * min(1000, left))
                    if isinstance(each, Problem)
                ]
                assert not refused, refused[0]
                left -= 1000


def _completed(all_records: list[Records]) -> int:
    return sum(each.redis.zcard(each.keys.ended(TaskState.COMPLETED)) for each in all_records)


def _cpu(server: EmbeddedRedis) -> float:
    """Seconds of processor that a server has used."""
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(rounds: int, part: float, tasks: int) -> str:
    """The figures of one server and three, in turns."""
    rates: dict[tuple[int, float], list[float]] = {}
    costs: dict[tuple[int, float], list[float]] = {}
    for _ in range(rounds):
        for speed in (part, 1.0):
            for partitions in (1, 3):
                many = tasks * (partitions if speed < 1 else 6)
                rate, cost = drain(partitions, many, speed, *(MANY if speed < 1 else FEW))
                rates.setdefault((partitions, speed), []).append(rate)
                costs.setdefault((partitions, speed), []).append(cost)
    ratios = [three / one for one, three in zip(rates[1, part], rates[3, part], strict=True)]
    growth = [three / one for one, three in zip(costs[1, 1.0], costs[3, 1.0], strict=True)]
    shown = "; ".join(
        f"{n} at {speed:g} of a core: {statistics.median(found):,.0f} tasks/s, "
        f"{statistics.median(costs[n, speed]):.0f} us of Redis each"
        for (n, speed), found in rates.items()
    )
    return (
        f"{shown}. Three to one, throttled: median {statistics.median(ratios):.2f} "
        f"({min(ratios):.2f} to {max(ratios):.2f}); server time per task, unthrottled: median "
        f"{statistics.median(growth):.2f} ({min(growth):.2f} to {max(growth):.2f})"
    )
