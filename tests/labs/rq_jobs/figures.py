"""Measures RQ jobs with RQ's workers and with our worker class: one process each, all started by `rq worker`.

The rounds are interleaved. A queue is drained while the worker runs; a lone job is enqueued when the one before it has
its result.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from redis import Redis
from rq import Queue

from firmq.shared.local.embedded_redis import EmbeddedRedis
from tests.support.harness import System, running_system, wait_until

CLASSES = {"firmq.rq.Worker": 1, "rq.SimpleWorker": 1, "rq.Worker": 10}
"""Each runs so many times fewer jobs: with all of them, RQ's own worker would take a minute."""
LONE = 200
_FUNCTION = "os.getpid"


def measure(folder: Path, jobs: int, rounds: int) -> Iterator[str]:
    """Yields lines with the figures of each round, and at last the medians."""
    drained, lone = defaultdict(list), defaultdict(list)
    with EmbeddedRedis(data_dir=folder / "redis") as server, Redis.from_url(server.url) as redis:
        for at in range(rounds):
            for worker_class, fewer in CLASSES.items():
                redis.flushdb()
                with running_system(redis, server.url, folder, LOG_LEVEL="ERROR") as system:
                    rate, wait = _round(system, worker_class, jobs // fewer)
                drained[worker_class].append(rate)
                lone[worker_class].append(wait)
                yield f"round {at + 1}: {worker_class} {rate:.0f} jobs/s, lone job p50 {wait * 1000:.2f} ms"
    rates = {each: statistics.median(found) for each, found in drained.items()}
    ours = rates["firmq.rq.Worker"]
    for each, rate in rates.items():
        wait = statistics.median(lone[each])
        yield f"{each}: {rate:.0f} jobs/s (ours: {ours / rate:.1f} times), lone job p50 {wait * 1000:.2f} ms"


def _round(system: System, worker_class: str, jobs: int) -> tuple[float, float]:
    """Returns jobs a second, and the seconds from before `enqueue` until the program has the result."""
    queue = Queue(connection=system.redis)
    system.start("rq.cli", "worker", "--url", system.url, "-w", worker_class, "--quiet", "default")
    first = queue.enqueue(_FUNCTION)
    wait_until(lambda: first.get_status() == "finished", "the worker is up")
    waits = []
    for _ in range(LONE):
        begun = time.perf_counter()
        queue.enqueue(_FUNCTION).latest_result(timeout=10)
        waits.append(time.perf_counter() - begun)
    # Suspended, so that none runs while they are enqueued; a worker looks at that between two jobs.
    system.redis.set("rq:suspended", 1)
    time.sleep(1.5)
    queue.enqueue_many([Queue.prepare_data(_FUNCTION) for _ in range(jobs)])
    before, begun = system.redis.zcard("rq:finished:default"), time.perf_counter()
    system.redis.delete("rq:suspended")
    while system.redis.zcard("rq:finished:default") - before < jobs:
        time.sleep(0.005)
    return jobs / (time.perf_counter() - begun), statistics.median(waits)
