"""Why pending tasks of the whole system wait, in counts that add up."""

from __future__ import annotations

import re
from typing import Any

import pytest
from flask.testing import FlaskClient

from firmq.gateway.app import create_app
from firmq.shared.config.settings import Settings
from firmq.shared.domain.limit import Limit
from firmq.shared.domain.task import TaskState
from firmq.shared.stores.limits import Limits
from tests.integration.dashboard.conftest import Browser
from tests.support.harness import System, wait_until
from tests.support.keys import keys


@pytest.fixture
def http(system: System) -> FlaskClient:
    return create_app(Settings(), system.redis).test_client()


def _reasons(http: FlaskClient) -> dict[tuple[str, str | None], int]:
    answer: dict[str, Any] = http.get("/waiting").json or {}
    assert answer["total"] == sum(each["count"] for each in answer["reasons"])
    return {(each["reason"], each["name"]): each["count"] for each in answer["reasons"]}


def test_each_task_is_counted_for_its_reason(system: System, http: FlaskClient, browser: Browser) -> None:
    assert _reasons(http) == {}
    Limits(system.scripts).put("key:scarce", Limit(concurrency=0))
    system.queues.pause("low", "lunch")
    system.submit_many([("noop", "null")] * 40, queue="low")
    system.start_worker(WORKER_EXECUTORS="1", EXECUTOR_SLOTS="1", WORKER_QUEUES="normal,low", WORKER_PREFETCH="0")
    system.submit("noop", queue="high")
    system.submit_many([("noop", "null")] * 2, limit_key="scarce")
    system.submit_many([("unheard-of", "null")] * 3)
    wanted = {
        ("queue_paused", "low"): 40,
        ("no_worker", "high"): 1,
        ("limit", "key:scarce"): 2,
        ("no_handler", "unheard-of"): 3,
    }

    def settled() -> bool:
        found = _reasons(http)
        return {key: found.get(key) for key in wanted} == wanted

    wait_until(settled, "all reasons are named")
    page = browser.text("/")
    assert "Of 46 waiting" in page
    assert re.search(r'action="/queues/low/resume".*?<button[^>]*>Resume low</button>', page, re.DOTALL)
    assert "firmq queues resume" not in page
    assert 'in it: firmq worker (<a href="/workers">Workers</a>)' in page


def test_a_worker_with_a_pattern_serves_the_queues_that_match(system: System, http: FlaskClient) -> None:
    system.start_worker(WORKER_EXECUTORS="1", EXECUTOR_SLOTS="1", WORKER_QUEUES="lo*")
    for _ in range(200):
        system.submit("slowly", '{"seconds": 60}', queue="low")
    wait_until(lambda: set(_reasons(http)) == {("no_free_executor", None)}, "all reasons are named")


def test_a_busy_system_says_so(system: System, http: FlaskClient) -> None:
    system.start_worker(WORKER_EXECUTORS="1", EXECUTOR_SLOTS="1")
    ids = [system.submit("slowly", '{"seconds": 60}') for _ in range(200)]
    wait_until(lambda: system.records.state(ids[0]) is TaskState.RUNNING, "it runs")
    wait_until(lambda: set(_reasons(http)) == {("no_free_executor", None)}, "all reasons are named")


def test_the_cost_is_bounded_with_a_million_waiting(system: System, http: FlaskClient) -> None:
    many = {f"task-{n}": n for n in range(20_000)}
    system.redis.zadd(keys.pending("normal"), many)
    for n in range(3000):
        system.redis.zadd(keys.wait_queues("normal|"), {f"tenant-{n}": n})
    system.redis.zadd(keys.throttled("normal"), many)
    system.redis.sadd(keys.RQ_QUEUES, keys.rq_queue("normal"))
    system.redis.config_resetstat()
    http.get("/waiting")
    said = system.redis.info("commandstats")
    assert sum(row["calls"] for row in said.values()) < 2000
