"""What tracing costs: `python -m tests.bench.tracing`.

Two figures, each with tracing off, with 1 % of the tasks sampled and sent to a collector, and the same with a collector
that is killed in the middle; in turns, so that the machine's moods fall on all of them alike. How many empty tasks a
second one worker with two executors drains, and how many submissions a second a gateway of one process takes from four
connections. The collector runs on the same machine.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
from redis import Redis

from shared.local.embedded_redis import EmbeddedRedis
from shared.local.ports import free_port
from shared.tasks import NewTask, TaskState, new_task_id
from tests.collector import Collector
from tests.harness import System, running_system, wait_until

WAYS = ("off", "1 % sampled", "collector killed")
_UNSAMPLED, _SAMPLED = (f"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0{flag}" for flag in (0, 1))
_SAMPLER = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.01"}


@contextmanager
def collected(way: str) -> Iterator[dict[str, str]]:
    """What a part is started with; the collector is killed after half a second, if that is the way."""
    if way == "off":
        yield {}
        return
    collector = Collector()
    killer = threading.Timer(0.5, collector.stop)
    if way == "collector killed":
        killer.start()
    try:
        yield {**collector.environment, **_SAMPLER}
    finally:
        killer.cancel()
        if way != "collector killed":
            collector.stop()


def drain(system: System, way: str, count: int) -> float:
    """Tasks a second."""
    system.redis.flushall()
    with collected(way) as environment:
        worker = system.start_worker(**environment, LEASE_TIME="15", LOG_LEVEL="WARNING")
        os.kill(worker.pid, 19)
        traces = itertools.cycle([_SAMPLED, *[_UNSAMPLED] * 99])
        system.queues.submit(
            [
                NewTask(id=new_task_id(), type="noop", data="null", queue="normal").joining(
                    None if way == "off" else next(traces)
                )
                for _ in range(count)
            ]
        )
        os.kill(worker.pid, 18)
        began = time.monotonic()
        wait_until(lambda: system.redis.zcard("taskqueue:completed") == count, "all are done", 300)
        took = time.monotonic() - began
        worker.terminate()
        worker.wait(20)
    assert system.records.counts()[TaskState.COMPLETED] == count
    return count / took


def take(system: System, way: str, seconds: float) -> float:
    """Submissions a second."""
    system.redis.flushall()
    with collected(way) as environment:
        worker = system.start_worker(WORKER_EXECUTORS="1", LOG_LEVEL="WARNING")
        worker.kill()
        worker.wait()
        port = free_port()
        gateway = system.start(
            "gateway", GATEWAY_PORT=str(port), GATEWAY_PROCESSES="1", LOG_LEVEL="WARNING", **environment
        )
        address = f"http://127.0.0.1:{port}"
        wait_until(lambda: _known(address), "the gateway is ready", 120)
        until = time.monotonic() + seconds

        def load() -> int:
            done = 0
            with httpx.Client(base_url=address, timeout=10) as client:
                while time.monotonic() < until:
                    client.post("/tasks", json={"type": "noop", "data": 1}).raise_for_status()
                    done += 1
            return done

        with ThreadPoolExecutor(4) as pool:
            total = sum(pool.map(lambda _: load(), range(4)))
        gateway.terminate()
        gateway.wait(20)
    return total / seconds


def _known(address: str) -> bool:
    try:
        return "noop" in httpx.get(f"{address}/types", timeout=2).text
    except httpx.HTTPError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    found: dict[tuple[str, str], list[float]] = {}
    with (
        tempfile.TemporaryDirectory() as name,
        EmbeddedRedis(data_dir=Path(name) / "redis") as server,
        Redis.from_url(server.url, protocol=2) as redis,
        running_system(redis, server.url, Path(name)) as system,
    ):
        for _ in range(options.rounds):
            for way in WAYS:
                found.setdefault(("drained", way), []).append(drain(system, way, options.tasks))
            for way in WAYS:
                found.setdefault(("submitted", way), []).append(take(system, way, options.seconds))
    print("| a second | tracing | median | all rounds | against off |\n|---|---|---:|---|---:|")
    for (what, way), rates in found.items():
        usual = statistics.median(found[what, "off"])
        median = statistics.median(rates)
        every = ", ".join(f"{rate:,.0f}" for rate in rates)
        print(f"| {what} | {way} | {median:,.0f} | {every} | {median / usual:.0%} |")


if __name__ == "__main__":
    main()
