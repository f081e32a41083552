"""What a page costs does not depend on how many tasks are stored.

With TEST_LONG=1 the large store holds a million tasks and a hundred thousand dead letters (about four minutes).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from html import unescape
from typing import NamedTuple

import pytest

from firmq.shared.domain.task import TaskState
from firmq.shared.redis.client import text
from tests.integration.dashboard.conftest import Browser
from tests.integration.dashboard.crowd import FAILURE_GROUPS, crowd
from tests.support.features import rows
from tests.support.harness import System, wait_until
from tests.support.keys import keys

LONG = os.environ.get("TEST_LONG") == "1"
FEW, MANY = (10_000, 1_000_000) if LONG else (2_000, 20_000)
MOST = 100.0
"""Milliseconds in which every page must be made, with nothing remembered from the page before."""
ROUNDS = 9
_PLAIN = ("/", "/tasks", "/queues", "/limits", "/workers", "/schedules", "/locks", "/audit", "/dead-letters")
_FILTERS = (
    "status=completed",
    "status=pending&queue=low",
    "type=kind-1",
    "type=kind-1&status=failed",
    "type=nobodys",
    "type=nobodys&status=failed",
    "tag=eu&status=failed",
    "since=2020-01-01T00:00:00Z",
)


def _paths(browser: Browser, system: System) -> dict[str, str]:
    """Every page by what it is; ids differ from one store to the next."""
    found = {path: path for path in (*_PLAIN, *rows("PAGES"))} | {
        f"/tasks?{each}": f"/tasks?{each}" for each in _FILTERS
    }
    group = re.search(r"/dead-letters/\w+", browser.text("/dead-letters"))
    assert group
    found["a cause"] = group[0]
    found["older tasks"] = _older(browser, "/tasks")
    for what, index in {
        "a dead letter": keys.ended(TaskState.FAILED),
        "a completed task": keys.ended(TaskState.COMPLETED),
        "a pending task": keys.pending("low"),
    }.items():
        middle = system.redis.zcard(index) // 2
        found[what] = f"/tasks/{text(system.redis.zrange(index, middle, middle)[0])}"
    return found


def _older(browser: Browser, path: str) -> str:
    link = re.search(r'href="([^"]*cursor=[^"]+)"', browser.text(path))
    assert link
    return unescape(link[1])


class Cost(NamedTuple):
    """Milliseconds that a page takes."""

    worked: float
    """Of processor time, in the dashboard and in Redis: what it takes where nobody disturbs it."""
    waited: float
    """Until it was there; on a busy machine others' work is in it."""


def _measured(browser: Browser, system: System) -> dict[str, Cost]:
    """What each page costs, at best of some rounds."""
    paths = _paths(browser, system)
    asks: dict[str, Callable[[], object]] = {what: lambda p=path: browser.text(p) for what, path in paths.items()}  # type: ignore[misc]
    cause = paths["a cause"].rpartition("/")[2]
    token = browser.token()
    for what, path, about in rows("REVIEWS"):
        form = {"csrf": token, "cause": cause, **about}
        asks[what] = lambda path=path, form=form: browser.client.post(path, data=form)  # type: ignore[misc]
    # Page after page and all again, so that whatever else the machine does now falls on all of them alike.
    rounds = [{what: _once(browser, system, ask) for what, ask in asks.items()} for _ in range(ROUNDS)]
    return {what: Cost(*(min(each) for each in zip(*(one[what] for one in rounds), strict=True))) for what in asks}


def _once(browser: Browser, system: System, ask: Callable[[], object]) -> Cost:
    browser.forget()
    worked, began = _worked(system), time.perf_counter()
    ask()
    waited = time.perf_counter() - began
    return Cost((_worked(system) - worked) * 1000, waited * 1000)


def _worked(system: System) -> float:
    """Seconds of processor time that the dashboard and Redis have taken so far."""
    redis = system.redis.info("cpu")
    return time.process_time() + float(redis["used_cpu_user_main_thread"]) + float(redis["used_cpu_sys_main_thread"])


def _table(few: dict[str, Cost], many: dict[str, Cost]) -> str:
    head = f"\n{'milliseconds a page':34}{FEW:>12,}{MANY:>12,}{FEW:>16,}{MANY:>12,}"
    rows = [
        f"{what:34}{few[what].worked:12.1f}{many[what].worked:12.1f}{few[what].waited:16.1f}{many[what].waited:12.1f}"
        for what in many
    ]
    return "\n".join([head, f"{'':34}{'of processor':>24}{'until it was there':>28}", *rows])


@pytest.mark.alone
@pytest.mark.timeout(900)
def test_every_page_costs_the_same_with_few_tasks_or_many(
    open_browser: Callable[..., Browser], system: System, capsys: pytest.CaptureFixture[str]
) -> None:
    times = []
    for size in (FEW, MANY):
        system.redis.flushall()
        crowd(system, size)
        wait_until(lambda: not system.redis.info("persistence")["aof_rewrite_in_progress"], "Redis is at rest", 300)
        assert system.redis.zcard(keys.FAILURE_GROUPS) == FAILURE_GROUPS
        assert system.records.counts()[TaskState.FAILED] == size // 10
        times.append(_measured(open_browser(), system))
    few, many = times
    if LONG:
        with capsys.disabled():
            print(_table(few, many))
    assert {what: cost for what, cost in many.items() if cost.worked > MOST} == {}
    assert {what: cost for what, cost in many.items() if cost.worked > 2 * few[what].worked + 10} == {}
