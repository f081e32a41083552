"""Measures concurrent handlers with a real worker and Redis: `python -m tests.labs.concurrent [CASE ...]`.

Redis writes its append-only file each second, and nothing is switched off. Each case prints one line.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from firmq.shared.domain.task import TaskDetail, TaskState
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect
from tests.support.harness import System, running_system, wait_until
from tests.support.keys import keys

SLOTS = 500
PROCESSES = 2
MEGABYTE = 1 << 20


@contextmanager
def system(**settings: str) -> Iterator[System]:
    """Yields a system without processes, with the settings that are shipped but for these."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        with EmbeddedRedis(data_dir=data) as server, connect(server.url) as redis:
            modules = {"TASK_MODULES": "tests.labs.concurrent.handlers"}
            with running_system(redis, server.url, Path(folder), **modules, **settings) as running:
                running.as_shipped = True
                yield running


def start_worker(running: System) -> subprocess.Popen[bytes]:
    """Starts a worker as it is shipped, and waits until its concurrent executors run tasks."""
    env = {**os.environ, "REDIS_URL": running.url, "WORKER_METRICS_PORT": "0", **running.environment}
    with open(running.log_dir / "worker.log", "wb") as log:
        worker = subprocess.Popen([sys.executable, "-m", "firmq", "worker"], env=env, stdout=log, stderr=log)
    running.processes.append(worker)
    wait_until(lambda: running.redis.exists(keys.CONCURRENT_TYPES), "the worker published its types")
    for kind, data in (("sleep", {"seconds": 0}), ("compute", {"submitted_at": 0})):
        running.ended(running.submit(kind, json.dumps(data)))
    wanted = int(running.environment["CONCURRENT_EXECUTORS"])
    wait_until(lambda: len(running.executors(worker, "concurrent")) == wanted, "all executors are up")
    time.sleep(2.0)  # the worker is idle, and all of its executors are ready
    return worker


def submit(running: System, kind: str, count: int = 1, **data: float) -> list[str]:
    return running.submit_many([(kind, json.dumps(data))] * count)


def details(running: System, ids: list[str]) -> list[TaskDetail]:
    return [running.records.get(each) for each in ids]


def wait_for_all(running: System, ids: list[str], seconds: float = 120.0) -> list[TaskDetail]:
    """Waits without disturbing: one question every 50 ms."""
    ended = [keys.ended(state) for state in (TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED)]
    before = sum(running.redis.zcard(key) for key in ended)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = [each for each in details(running, ids[-1:]) if each.summary.state.ended]
        if found and all(running.records.state(each).ended for each in ids):
            return details(running, ids)
        time.sleep(0.05)
    raise SystemExit(f"not all of {len(ids)} tasks ended within {seconds:g} s (ended before: {before})")


def seconds_of(task: TaskDetail) -> float:
    """Returns the duration of its last attempt."""
    last = task.attempts[-1]
    assert last.started_at
    assert last.ended_at
    return (last.ended_at - last.started_at).total_seconds()


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def settings(slots: int = SLOTS) -> dict[str, str]:
    return {"CONCURRENT_EXECUTORS": str(PROCESSES), "EXECUTOR_SLOTS": str(slots)}


def sleepers() -> str:
    """2,000 tasks that sleep for one second, in two processes of 500 slots; 1 ms tasks are submitted meanwhile."""
    with system(**settings()) as running:
        worker = start_worker(running)
        ids = submit(running, "sleep", 2000, seconds=1)
        small, memory = list[str](), 0
        for part in range(4):
            until = time.monotonic() + 0.5
            while time.monotonic() < until:
                small += submit(running, "compute", submitted_at=time.time())
                time.sleep(0.005)
            if part == 1:
                memory = rss(worker.pid)
        tasks = wait_for_all(running, ids)
        starts = [attempt.started_at for task in tasks for attempt in task.attempts if attempt.started_at]
        ends = [task.summary.ended_at for task in tasks if task.summary.ended_at]
        took = (max(ends) - min(starts)).total_seconds()
        waits = [1e3 * float(task.result) for task in wait_for_all(running, small)]
        half, most = percentile(waits, 0.5), percentile(waits, 0.99)
        return (
            f"2,000 x sleep(1) in {PROCESSES} x {SLOTS} slots: {took:.2f} s from the first claim; worker and executors "
            f"{memory / MEGABYTE:.0f} MiB RSS; wait of {len(waits)} tasks of 1 ms: p50 {half:.1f}, p99 {most:.1f}, "
            f"max {max(waits):.1f} ms"
        )


def rss(pid: int) -> int:
    """Returns the resident memory of a process and its descendants."""
    total = 0
    for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def killed() -> str:
    """kill -9 of an executor that runs 500 tasks."""
    with system(**settings(SLOTS) | {"CONCURRENT_EXECUTORS": "1"}) as running:
        worker = start_worker(running)
        ids = submit(running, "sleep", SLOTS, seconds=5)
        all_running(running, ids)
        time.sleep(1)  # they are claimed; one that has not begun in its executor would keep its first attempt
        [executor] = running.executors(worker, "concurrent")
        os.kill(executor, signal.SIGKILL)
        began = time.monotonic()
        wait_until(lambda: all(each.summary.attempt == 2 for each in details(running, ids)), "all run again")
        again = time.monotonic() - began
        tasks = wait_for_all(running, ids)
        states = Counter(str(each.summary.state) for each in tasks)
        attempts = Counter(each.summary.attempt for each in tasks)
        how = f"{dict(states)}, attempts {dict(attempts)}"
        return f"kill -9 with {SLOTS} running: all run again after {again:.2f} s; {how}"


def killer() -> str:
    """One of 500 tasks ends its process each time it runs."""
    with system(**settings(SLOTS) | {"CONCURRENT_EXECUTORS": "1"}) as running:
        start_worker(running)
        running.start_housekeeper()  # it makes retries pending
        ids = submit(running, "sleep", SLOTS - 1, seconds=3)
        [guilty] = submit(running, "die", after=1)
        began = time.monotonic()
        tasks = wait_for_all(running, ids)
        others = time.monotonic() - began
        dead = running.ended(guilty, 120)
        took = time.monotonic() - began
        states = Counter(str(each.summary.state) for each in tasks)
        attempts = Counter(each.summary.attempt for each in tasks)
        reason = dead.summary.error.type if dead.summary.error else None
        return (
            f"os._exit beside {SLOTS - 1}: these {dict(states)} after {others:.1f} s with attempts {dict(attempts)}; "
            f"the guilty one {dead.summary.state} ({reason}) with attempt {dead.summary.attempt} after {took:.1f} s"
        )


def all_running(running: System, ids: list[str]) -> None:
    wait_until(lambda: running.redis.zcard(keys.LEASES) >= len(ids), "all are running")


def limited() -> str:
    """A limit of one second, and a cancel, among 500."""
    with system(**settings(SLOTS) | {"CONCURRENT_EXECUTORS": "1"}) as running:
        start_worker(running)
        ids = submit(running, "sleep", SLOTS - 2, seconds=5)
        late, unwanted = submit(running, "short", seconds=30) + submit(running, "sleep", seconds=30)
        all_running(running, [*ids, late, unwanted])
        time.sleep(0.5)
        began = time.monotonic()
        running.queues.cancel(unwanted, "")
        wait_until(lambda: running.records.state(unwanted).ended, "it was cancelled")
        cancel = time.monotonic() - began
        limit = seconds_of(running.ended(late))
        return f"limit of 1 s: ended after {limit:.3f} s; cancel after {cancel * 1e3:.0f} ms; {beside(running, ids, 5)}"


def blocked() -> str:
    """A coroutine that blocks the event loop for five seconds beside 400."""
    with system(**settings(SLOTS) | {"CONCURRENT_EXECUTORS": "1"}) as running:
        start_worker(running)
        ids = submit(running, "sleep", 400, seconds=3)
        all_running(running, ids)
        began = time.monotonic()
        submit(running, "block", seconds=5)
        log = running.log_dir / "worker.log"
        wait_until(lambda: "time.sleep" in log.read_text(), "the blocking line was reported")
        reported = time.monotonic() - began
        return f"blocked loop: reported after {reported:.1f} s; {beside(running, ids, 3)}"


def beside(running: System, ids: list[str], seconds: float) -> str:
    tasks = wait_for_all(running, ids)
    longest = max(map(seconds_of, tasks))
    attempts = Counter(each.summary.attempt for each in tasks)
    return f"beside it {len(ids)} of {seconds:g} s took {longest:.3f} s at most, attempts {dict(attempts)}"


def idle() -> str:
    """A worker with nothing to do."""
    with system(**settings()) as running:
        worker = start_worker(running)
        time.sleep(5.0)
        commands, processor = commands_of(running), cpu(worker.pid)
        time.sleep(40.0)
        return (
            f"idle: {(commands_of(running) - commands) / 40:.1f} Redis commands/s with those of scripts, "
            f"{(cpu(worker.pid) - processor) / 40:.2%} of a core"
        )


def commands_of(running: System) -> int:
    return int(running.redis.info("stats")["total_commands_processed"])


def cpu(pid: int) -> float:
    every = (psutil.Process(pid), *psutil.Process(pid).children(recursive=True))
    return sum(sum(each.cpu_times()[:2]) for each in every)


CASES: dict[str, Callable[[], str]] = {
    each.__name__: each for each in (sleepers, killed, killer, limited, blocked, idle)
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.labs.concurrent", description=__doc__)
    parser.add_argument("cases", metavar="CASE", nargs="*", choices=[*CASES, []], help=", ".join(CASES))
    for name in parser.parse_args().cases or CASES:
        print(f"{name}: {CASES[name]()}", flush=True)


if __name__ == "__main__":
    main()
