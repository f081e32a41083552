"""What one gateway takes: `python -m tests.bench.http` (needs wrk).

A gateway with its default number of processes and a worker-less Redis of its own, on this machine, which also runs the
load: the figures are for all three together. Tasks go into a queue that nobody empties; types are published without a
worker, so that nothing but submission is measured.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from redis import Redis

from shared.local.embedded_redis import EmbeddedRedis
from shared.local.ports import free_port
from shared.task_types import TaskType, TaskTypes
from tests.harness import ROOT, wait_until

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
        [sys.executable, "-m", "gateway"],
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
        return httpx.get(f"{address}/health/ready", timeout=1).is_success
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


def measure(folder: Path, address: str, seconds: int) -> list[str]:
    """A row for every kind of request and number of connections."""
    one = '{"type":"noop","data":{"to":"somebody@example.org","body":"' + "x" * 150 + '"}}'
    many = f'{{"tasks":[{",".join([one] * BATCH)}]}}'
    first = httpx.post(f"{address}/tasks", content=one, headers={"Content-Type": "application/json"}).json()["task_id"]
    kinds: list[tuple[str, str, str | None, int]] = [
        ("POST /tasks", "/tasks", one, 1),
        ("GET /tasks/{id}", f"/tasks/{first}", None, 1),
        ("GET /tasks", "/tasks", None, 1),
        (f"POST /tasks/batch of {BATCH}", "/tasks/batch", many, BATCH),
    ]
    rows = []
    for name, path, body, tasks in kinds:
        for connections in (1, 8, 64):
            if tasks > 1 and connections > 8:
                continue
            rate, median, high = wrk(folder, address, path, connections, seconds, body)
            shown = f"{rate:,.0f}" if tasks == 1 else f"{rate:,.1f} ({rate * tasks:,.0f} tasks)"
            rows.append(f"| {name} | {connections} | {shown} | {median} | {high} |")
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=5, help="length of each load")
    seconds = parser.parse_args().seconds
    if not shutil.which("wrk"):
        raise SystemExit("wrk is not installed: on Debian, apt-get install wrk")
    with (
        tempfile.TemporaryDirectory() as name,
        EmbeddedRedis(data_dir=Path(name) / "redis") as server,
        Redis.from_url(server.url, protocol=2) as redis,
        gateway(server.url) as address,
    ):
        TaskTypes(redis).publish([TaskType(name="noop", schema={})])
        print("| request | connections | a second | median | p99 |\n|---|---:|---:|---:|---:|")
        measure(Path(name), address, seconds)


if __name__ == "__main__":
    main()
