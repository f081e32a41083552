"""What the pages say about busy executors and slots over time."""

from __future__ import annotations

import json
import re
import time
from html import unescape
from typing import Any

from firmq.dashboard.context import PageContext
from tests.integration.dashboard.conftest import Browser
from tests.support.harness import System, wait_until
from tests.support.keys import keys


def test_the_overview_says_what_keeps_all_executors_busy(browser: Browser, system: System) -> None:
    system.start_worker(WORKER_EXECUTORS="2")
    assert 'id="busy"' not in browser.text("/")
    system.submit_many([("slowly", '{"seconds": 300}')] * 3)

    def said() -> str:
        browser.forget()
        found = re.search(r'id="busy"><a[^>]*>([^<]*)</a>', browser.text("/"))
        return unescape(found[1]) if found else ""

    assert wait_until(said, "it is said") == "All executors are busy: 2 × slowly."


def test_executors_and_busy_ones_are_counted_by_minute(browser: Browser, system: System) -> None:
    system.start_worker(WORKER_EXECUTORS="2")
    system.submit_many([("slowly", '{"seconds": 300}')])

    def counted() -> Any:
        minutes = [system.redis.hgetall(keys.throughput(int(time.time()) // 60 - each)) for each in range(2)]
        return next((each for each in minutes if int(each.get(b"busy_ms", 0)) > 0), None)

    found = wait_until(counted, "heartbeats counted")
    assert int(found[b"slot_ms"]) >= int(found[b"busy_ms"])
    browser.forget()
    context: PageContext = browser.app.extensions["page_context"]
    assert context.queries.snapshot().total("busy_ms") > 0
    data = re.search(r'id="chart-data" value="([^"]*)"', browser.text("/workers"))
    assert data
    charts = json.loads(unescape(data[1]))
    assert charts["deploys"] == []
    assert len(charts["executors"]) == len(charts["busy"]) == len(charts["minute"]) == 60
    assert max(charts["executors"]) > 0
    assert max(charts["busy"]) > 0


def test_a_heartbeat_after_a_long_silence_counts_ten_seconds(system: System) -> None:
    worker = ("w", 60, "{}", '["normal"]', '["state", "idle"]', 60, "-", "host", "[]", 4, 3)
    system.scripts.call("announce", *worker)
    system.redis.zincrby(keys.WORKERS, -3_600_000_000, "w")
    system.scripts.call("announce", *worker)
    [counts] = [system.redis.hgetall(key) for key in system.redis.scan_iter(keys.throughput(0)[:-1] + "*")]
    assert counts == {b"slot_ms": b"40000", b"busy_ms": b"30000"}
