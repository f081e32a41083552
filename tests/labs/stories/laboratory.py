"""Builds the shop, lets it get into trouble, and plays the stories."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect
from tests.labs.stories.shop import OLD, fill
from tests.labs.stories.stories import Player, broken_release, browser_page, dead_letters, stuck_queue
from tests.support.harness import System, free_port, running_system, wait_until
from tests.support.keys import keys

STUCK = 4
WAITING = 300


def run(folder: Path, tasks: int, dead: int, shots: Path | None = None) -> Player:
    """Plays the stories on so many tasks, and returns the player with what it reached."""
    port = free_port()
    environment = {
        "TASK_MODULES": "tests.labs.stories.handlers",
        "HISTORY_URL": f"sqlite:///{folder / 'history.db'}",
        "DASHBOARD_PORT": str(port),
        "DASHBOARD_REFRESH": "1",
        "APP_VERSION": OLD,
    }
    with (
        EmbeddedRedis(data_dir=folder / "redis") as server,
        connect(server.url, timeout=10) as redis,
        running_system(redis, server.url, folder, **environment) as system,
    ):
        system.start_housekeeper()
        wait_until(lambda: redis.exists(keys.HISTORY), "ends are registered for the history")
        system.start_worker(WORKER_EXECUTORS=str(STUCK), WORKER_QUEUES="reports")
        fill(system, tasks, dead)
        address = f"http://127.0.0.1:{port}"
        system.start("dashboard")
        wait_until(lambda: _answers(address), "the dashboard answers")
        wait_until(lambda: not redis.zcard(keys.UNARCHIVED), "the history has all tasks", 300)
        with browser_page(address) as page:
            player = Player(page, shots)
            hanging = hang(system)
            stuck_queue(player)
            for each in hanging:
                system.queues.cancel(each, "it hangs")
            system.start_worker(WORKER_EXECUTORS="2")
            dead_letters(player)
            broken_release(player, system)
            return player


def hang(system: System) -> list[str]:
    """Fills all executors with reports that hang, and lets others wait behind them; returns those that hang."""
    report = json.dumps({"day": 1, "seconds": 900})
    hanging = system.submit_many([("nightly-report", report)] * STUCK, "reports")
    wait_until(lambda: system.redis.zcard(keys.LEASES) >= STUCK, "the reports run")
    system.submit_many([("nightly-report", json.dumps({"day": day})) for day in range(WAITING)], "reports")
    return hanging


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health/live", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
