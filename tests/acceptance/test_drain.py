"""What a person does to a worker of the single-machine start."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from urllib.parse import quote

import httpx

from tests.acceptance.running import Product, product
from tests.support.harness import wait_until


def workers(running: Product) -> list[str]:
    return [worker["name"] for worker in running.api.get("/workers").json()["items"]]


def drain(running: Product, worker: str) -> None:
    """The button on the Workers page of the dashboard."""
    address = f"http://127.0.0.1:{running.ports['DASHBOARD_PORT']}"
    with httpx.Client(base_url=address, timeout=60, follow_redirects=True) as person:
        page = person.get("/workers").text
        token = re.search(r'name="csrf" value="([^"]+)"', page)
        assert token
        assert f'action="/workers/{quote(worker)}/drain"' in page
        answer = person.post(f"/workers/{quote(worker)}/drain", data={"csrf": unescape(token[1])})
        assert "is draining" in answer.text


def test_a_worker_drained_from_the_dashboard_ends_in_order_and_another_takes_its_place(tmp_path: Path) -> None:
    with product(tmp_path, TASK_MODULES="firmq.worker.handlers.examples") as running:
        [first] = wait_until(lambda: workers(running), "a worker is there")
        drain(running, first)
        [second] = wait_until(lambda: [name for name in workers(running) if name != first], "another has come")
        assert second != first
        task = running.api.post("/tasks", json={"type": "calculate", "data": "6 * 7"}).json()["task_id"]
        assert running.api.get(f"/tasks/{task}/result?wait=20").json()["result"]["value"] == "42"
        wait_until(lambda: workers(running) == [second], "the first is not listed any more")
        log = running.log.read_text()
        assert "stopped cleanly, on request; starting it again" in log
        assert "ended with status" not in log
        assert running.stop() == 0
