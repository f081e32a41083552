"""Times the pages of the dashboard and the API over a large history."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect
from tests.support.harness import free_port, running_system, wait_until

ROUNDS = 5
DASHBOARD = (
    "/", "/tasks?status=completed", "/tasks?status=failed", "/tasks?status=failed&type=type-3",
    "/tasks?status=completed&queue=low", "/tasks?status=completed&tag=eu",
    "/tasks?status=failed&since={month}&until={week}", "/tasks/{task}", "/types", "/types/type-3?range=24h",
    "/types/type-3?range=30d", "/types/type-3?range=1y", "/analytics?range=1h", "/analytics?range=24h",
    "/analytics?range=7d", "/analytics?range=30d", "/analytics?range=1y", "/dead-letters",
)  # fmt: skip
GATEWAY = (
    "/tasks/{task}", "/tasks?status=completed", "/tasks?status=failed&type=type-3", "/tasks?status=completed&queue=low",
    "/analytics?range=24h", "/analytics?range=7d", "/analytics?range=30d&type=type-3", "/analytics?range=1y",
)  # fmt: skip


def measure(folder: Path, database: str) -> list[tuple[str, float, float, int]]:
    """Returns each page with the median and the longest time in ms of cold requests, and its size in bytes."""
    rows = []
    with _served(folder, database) as (dashboard, gateway):
        for where, paths in ((dashboard, DASHBOARD), (gateway, GATEWAY)):
            for path in paths:
                times, size = list[float](), 0
                for turn in range(ROUNDS):
                    named = _named(path, turn) if where == dashboard else path.format(task=f"01H{turn * 1009 + 1:023X}")
                    spent, size = _get(where + named)
                    times.append(spent * 1000)
                name = path if where == dashboard else f"API {path}"
                rows.append((name, median(times), max(times), size))
    return rows


def _named(path: str, turn: int) -> str:
    """Returns a path for which the dashboard has no answer from the second before."""
    now = int(time.time())
    day = "%Y-%m-%dT00:00:00Z"
    path = path.format(
        task=f"01H{turn * 1009 + 1:023X}",
        month=time.strftime(day, time.gmtime(now - 30 * 86400)),
        week=time.strftime(day, time.gmtime(now - 7 * 86400)),
    )
    return f"{path}&until={now - turn * 7}" if path.startswith(("/types/", "/analytics")) else path


def _get(url: str) -> tuple[float, int]:
    begun = time.perf_counter()
    with urllib.request.urlopen(url, timeout=30) as answer:
        size = len(answer.read())
    return time.perf_counter() - begun, size


@contextmanager
def _served(folder: Path, database: str) -> Iterator[tuple[str, str]]:
    """Yields the addresses of a dashboard and a gateway on this history."""
    ports = free_port(), free_port()
    with (
        EmbeddedRedis(data_dir=folder / "redis") as server,
        connect(server.url, timeout=2) as client,
        running_system(client, server.url, folder, HISTORY_URL=database) as system,
    ):
        system.start("dashboard", DASHBOARD_PORT=str(ports[0]))
        system.start("gateway", GATEWAY_PORT=str(ports[1]), GATEWAY_PROCESSES="1")
        addresses = f"http://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}"
        for address in addresses:
            wait_until(partial(_answers, f"{address}/health/live"), f"{address} answers")
        yield addresses


def _answers(url: str) -> bool:
    try:
        return _get(url)[0] > 0
    except OSError:
        return False
