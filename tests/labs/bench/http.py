"""What one gateway takes: `python -m tests.labs.bench.http` (needs wrk).

A gateway with its default number of processes and a worker-less Redis of its own, on this machine, which also runs the
load: the figures are for all three together. Tasks go into a queue that nobody empties; types are published without a
worker, so that nothing but submission is measured. Then submission at a fixed rate, large batches, and reads of a
store that grows.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from redis import Redis

from firmq.shared.client import Client
from firmq.shared.http.bind import free_port
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.stores.task_types import TaskType, TaskTypes
from tests.labs.bench import paced
from tests.labs.bench.growth import Store
from tests.support.harness import ROOT, wait_until

BATCH = 1000
_SCRIPT = """
wrk.method = "{method}"
wrk.headers["Content-Type"] = "application/json"
wrk.body = [==[{body}]==]
"""


@contextmanager
def gateway(url: str) -> Iterator[str]:
    """A gateway on a free port; its address."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "firmq", "gateway"],
        env={**os.environ, "REDIS_URL": url, "GATEWAY_PORT": str(port), "LOG_LEVEL": "WARNING"},
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: _ready(address), "the gateway is ready")
        yield address
    finally:
        process.terminate()
        process.wait(20)


def _ready(address: str) -> bool:
    try:
        return httpx.get(f"{address}/health/live", timeout=1).is_success
    except httpx.HTTPError:
        return False


def wrk(
    folder: Path, address: str, path: str, connections: int, seconds: int, body: str | None
) -> tuple[float, str, str]:
    """Requests a second, and the median and 99th percentile of their time."""
    script = folder / "load.lua"
    script.write_text(_SCRIPT.format(method="POST" if body else "GET", body=body or ""))
    done = subprocess.run(
        ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(script), f"{address}{path}"],
        capture_output=True,
        text=True,
        timeout=seconds + 30,
        check=True,
    )
    if "Non-2xx" in done.stdout:
        raise SystemExit(f"{path}: {done.stdout}")
    rate = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    assert rate
    latency = dict(re.findall(r"\s+(50|99)%\s+(\S+)", done.stdout))
    return float(rate[1]), latency["50"], latency["99"]


ONE = '{"type":"noop","data":{"to":"somebody@example.org","body":"' + "x" * 150 + '"}}'
RATE = 500
LARGE = 100_000


def requests(folder: Path, address: str, redis: Redis, options: argparse.Namespace) -> None:
    """A row for every kind of request and number of connections."""
    many = f'{{"tasks":[{",".join([ONE] * BATCH)}]}}'
    first = httpx.post(f"{address}/tasks", content=ONE, headers={"Content-Type": "application/json"}).json()["task_id"]
    kinds: list[tuple[str, str, str | None, int]] = [
        ("POST /tasks", "/tasks", ONE, 1),
        ("GET /tasks/{id}", f"/tasks/{first}", None, 1),
        ("GET /tasks", "/tasks", None, 1),
        (f"POST /tasks/batch of {BATCH}", "/tasks/batch", many, BATCH),
    ]
    print("| request | connections | a second | median | p99 |\n|---|---:|---:|---:|---:|")
    for name, path, body, tasks in kinds:
        for connections in (1, 8, 64):
            if tasks > 1 and connections > 8:
                continue
            rate, median, high = wrk(folder, address, path, connections, options.seconds, body)
            shown = f"{rate:,.0f}" if tasks == 1 else f"{rate:,.1f} ({rate * tasks:,.0f} tasks)"
            print(f"| {name} | {connections} | {shown} | {median} | {high} |", flush=True)


def steady(folder: Path, address: str, redis: Redis, options: argparse.Namespace) -> None:
    """How long submission takes at a rate that the gateway can keep up with."""
    median, high, longest = paced.post(int(address.rsplit(":", 1)[1]), "/tasks", ONE, RATE, 2 * options.seconds)
    print(
        f"\nPOST /tasks, {RATE} a second: median {median:.1f} ms, p99 {high:.1f} ms, max {longest:.1f} ms", flush=True
    )


def batches(folder: Path, address: str, redis: Redis, options: argparse.Namespace) -> None:
    """A hundred thousand tasks in one batch, sent by the client."""
    one = json.loads(ONE)
    ways: dict[str, Iterable[dict[str, Any]]] = {"a list": [one] * LARGE, "a generator": (one for _ in range(LARGE))}
    for name, tasks in ways.items():
        with Client(address) as client:
            begun, spent = time.perf_counter(), time.process_time()
            accepted = client.batch(tasks).drain().accepted
            seconds, spent = time.perf_counter() - begun, time.process_time() - spent
        print(f"\n{accepted:,} tasks from {name} in one batch: {seconds:.1f} s (client: {spent:.1f} s)", flush=True)


def reads(folder: Path, address: str, redis: Redis, options: argparse.Namespace) -> None:
    """A row for every kind of read, a column for every size of the store; 8 connections."""
    store = Store(redis)
    [known] = store.submit(1)
    paths = {
        "one task": f"/tasks/{known}",
        "first page": "/tasks",
        "of one type": "/tasks?type=type-3",
        "of one tag": "/tasks?tag=tagged",
        "pending": "/tasks?status=pending",
        "dead letters": "/dlq/failed-tasks",
        "queues": "/queues",
    }
    rows: dict[str, list[str]] = {name: [] for name in paths}
    sizes = [size for size in (10_000, 100_000, 1_000_000) if size <= options.largest]
    for size in sizes:
        store.fill(size)
        for name, path in paths.items():
            rate, median, _ = wrk(folder, address, path, 8, options.seconds, None)
            rows[name].append(f"{rate:,.0f} ({median})")
    print("\n| reads a second (median) | " + " | ".join(f"{size:,} tasks" for size in sizes) + " |")
    print("|---|" + "---:|" * len(sizes))
    for name, cells in rows.items():
        print(f"| {name} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=5, help="length of each load")
    parser.add_argument("--largest", type=int, default=1_000_000, help="tasks in the largest store; 0: no reads")
    options = parser.parse_args()
    if not shutil.which("wrk"):
        raise SystemExit("wrk is not installed: on Debian, apt-get install wrk")
    for act in (requests, steady, batches, reads) if options.largest else (requests, steady, batches):
        with (
            tempfile.TemporaryDirectory() as name,
            EmbeddedRedis(data_dir=Path(name) / "redis") as server,
            Redis.from_url(server.url, protocol=2) as redis,
            gateway(server.url) as address,
        ):
            TaskTypes(redis).publish([TaskType(name="noop", schema={})])
            act(Path(name), address, redis, options)


if __name__ == "__main__":
    main()
