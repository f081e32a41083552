"""The orders of the example end as its README says, at a worker that is killed again and again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from tests.acceptance.running import Product, product
from tests.support.harness import ROOT, wait_until

EXAMPLE = "examples.order_saga"
README = (ROOT / "examples" / "order_saga" / "README.md").read_text()


def worker(redis_url: str, journal: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "firmq", "worker", f"{EXAMPLE}.tasks"],
        env={
            "PATH": os.environ["PATH"],
            "REDIS_URL": redis_url,
            "WORKER_METRICS_PORT": "0",
            "SHOP_JOURNAL": str(journal),
            "LEASE_TIME": "3",
            "WORKER_EXECUTORS": "1",
        },
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
    )


def test_orders_survive_workers_that_are_killed(tmp_path: Path) -> None:
    assert f"firmq worker {EXAMPLE}.tasks" in README
    journal = tmp_path / "journal"
    journal.touch()
    articles = ["book", "unicorn", "pen"] * 5
    with product(
        tmp_path, TASK_MODULES="firmq.worker.handlers.examples", HOUSEKEEPER_TIMEOUT_INTERVAL="0.3"
    ) as running:
        current = worker(running.redis_url, journal)
        try:
            wait_until(lambda: "saga-order" in running.api.get("/types").text, "the worker's types are known")

            def submit(order: int, article: str, amount: int) -> str:
                data = {"order": order, "article": article, "amount": amount, "thank_after": 1}
                answer = running.api.post("/tasks", json={"type": "saga-order", "data": data})
                assert answer.status_code == 202, answer.text
                return str(answer.json()["task_id"])

            orders = [submit(number, article, 20) for number, article in enumerate(articles)]
            expensive = submit(100, "book", 5000)
            for _ in range(3):
                time.sleep(0.7)
                current.kill()
                current.wait()
                current = worker(running.redis_url, journal)
            wait_until(
                lambda: running.api.get(f"/tasks/{expensive}").json()["awaits"] == "signal:approval", "it waits", 120
            )
            signal = running.api.post(f"/tasks/{expensive}/signals/approval", json={"data": {"approved": True}})
            assert signal.status_code == 200, signal.text
            ended = [wait_until(partial(_ended, running, each), "it ended", 120) for each in [*orders, expensive]]
        finally:
            current.terminate()
            assert current.wait(120) == 0
    wanted = ["refunded" if article == "unicorn" else "completed" for article in [*articles, "book"]]
    assert [each["result"]["order"] for each in ended] == wanted
    done = Counter(tuple(line.split()[:2]) for line in journal.read_text().splitlines())
    keys = Counter(tuple(line.split()) for line in journal.read_text().splitlines() if line.startswith("charge"))
    assert len(keys) == len(wanted), "a charge that was repeated had the same key"
    for order, end in [*enumerate(wanted[:-1]), (100, wanted[-1])]:
        assert bool(done["refund", str(order)]) == (end == "refunded")
        assert bool(done["ship", str(order)]) == (end == "completed")
        assert bool(done["thank", str(order)]) == (end == "completed")


def _ended(running: Product, task_id: str) -> Any:
    shown = running.api.get(f"/tasks/{task_id}").json()
    return shown if shown["ended_at"] else None
