"""What tracing costs: `python -m tests.labs.bench.tracing`.

Two figures, each with tracing off, with 1 % of the tasks sampled and sent to a collector, and the same with a collector
that is killed in the middle; in turns, so that the machine's moods fall on all of them alike. How many empty tasks a
second one worker with two executors drains, and how many submissions a second a gateway of one process takes from four
connections. The collector runs on the same machine. Where others work on the machine too, processor seconds tell more:
those of worker, executors and Redis for a thousand tasks are shown beside.
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
import psutil
from redis import Redis

from firmq.shared.domain.task import NewTask, TaskState, new_task_id
from firmq.shared.http.bind import free_port
from firmq.shared.local.embedded_redis import EmbeddedRedis
from tests.support.collector import Collector
from tests.support.harness import System, running_system, wait_until

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


def drain(system: System, way: str, count: int) -> tuple[float, float]:
    """Tasks a second, and processor seconds for a thousand."""
    system.redis.flushall()
    with collected(way) as environment:
        worker = system.start_worker(**environment, LEASE_TIME="15", LOG_LEVEL="WARNING")
        os.kill(worker.pid, 19)
        traces = itertools.cycle([_SAMPLED, *[_UNSAMPLED] * 99])
        system.queues.submit(
            [
                NewTask(id=new_task_id(), type="noop", data="null", queue="normal").with_trace(
                    None if way == "off" else next(traces)
                )
                for _ in range(count)
            ]
        )
        os.kill(worker.pid, 18)
        began, used = time.monotonic(), processor_seconds(system, worker.pid)
        wait_until(lambda: system.redis.zcard("firmq:completed") == count, "all are done", 300)
        took, used = time.monotonic() - began, processor_seconds(system, worker.pid) - used
        worker.terminate()
        worker.wait(20)
    assert system.records.counts()[TaskState.COMPLETED] == count
    return count / took, 1000 * used / count


def processor_seconds(system: System, *pids: int) -> float:
    """What these processes, their children and Redis have used."""
    processes = [each for pid in pids for each in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True))]
    redis = system.redis.info("cpu")
    ours = sum(times.user + times.system for times in (each.cpu_times() for each in processes))
    return float(redis["used_cpu_user"] + redis["used_cpu_sys"] + ours)


def take(system: System, way: str, seconds: float) -> tuple[float, float]:
    """Submissions a second, and processor seconds for a thousand."""
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
        until, used = time.monotonic() + seconds, processor_seconds(system, gateway.pid)

        def load() -> int:
            done = 0
            with httpx.Client(base_url=address, timeout=10) as client:
                while time.monotonic() < until:
                    client.post("/tasks", json={"type": "noop", "data": 1}).raise_for_status()
                    done += 1
            return done

        with ThreadPoolExecutor(4) as pool:
            total = sum(pool.map(lambda _: load(), range(4)))
        used = processor_seconds(system, gateway.pid) - used
        gateway.terminate()
        gateway.wait(20)
    return total / seconds, 1000 * used / total


def _known(address: str) -> bool:
    try:
        return "noop" in httpx.get(f"{address}/types", timeout=2).text
    except httpx.HTTPError:
        return False


def middle(rounds: list[tuple[float, float]]) -> tuple[float, float]:
    """The medians of both figures."""
    rates, used = zip(*rounds, strict=True)
    return statistics.median(rates), statistics.median(used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
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
    print("| tasks | tracing | a second | against off | processor s for 1,000 | against off |")
    print("|---|---|---:|---:|---:|---:|")
    for (what, way), rounds in found.items():
        rate, used = middle(rounds)
        usual, usually = middle(found[what, "off"])
        print(f"| {what} | {way} | {rate:,.0f} | {rate / usual:.0%} | {used:.3f} | {used / usually:.0%} |")


if __name__ == "__main__":
    main()
