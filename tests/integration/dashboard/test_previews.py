"""What rows of lists show of the data of tasks, without hidden values and within bounds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from firmq.dashboard.queries import PREVIEWED
from firmq.shared.stores.task_types import TaskType, TaskTypes
from firmq.shared.stores.tasks import Unread
from tests.integration.dashboard.conftest import Browser, bury
from tests.support.harness import System
from tests.support.keys import keys

SECRET = {"order": 17, "password": "s3cret", "customer": {"name": "Ada <b>", "token": "t0ken"}}


def test_a_row_shows_data_by_the_template_of_its_type(browser: Browser, system: System) -> None:
    schema = {"x-preview": "order {order} for {customer.name}, {customer.token}"}
    TaskTypes(system.redis).publish([TaskType(name="pay", schema=schema)])
    system.submit("pay", json.dumps(SECRET))
    system.submit("other", json.dumps(SECRET))
    page = browser.text("/tasks")
    assert "order 17 for Ada &lt;b&gt;, ••••••" in page
    assert "order: 17, password: ••••••" in page
    assert "s3cret" not in page + browser.text("/")
    assert "t0ken" not in page


def test_a_row_does_not_read_large_data(browser: Browser, system: System) -> None:
    system.submit("any", json.dumps({"shown": "never", "text": "x" * PREVIEWED}))
    page = browser.text("/tasks")
    assert "shown: never" not in page
    context = browser.app.extensions["page_context"]
    [(_, data)] = context.stores.tasks.small_data(context.queries.snapshot().recent, PREVIEWED)
    assert data is Unread.LARGE


def test_data_that_cannot_be_read_is_left_out(browser: Browser, system: System) -> None:
    task = system.submit("any", '{"a": 1}')
    system.redis.hset(keys.rq_job(task), "data", "no call")
    assert task in browser.text("/tasks")


def test_lists_work_with_the_rights_of_an_earlier_version(system: System, open_browser: Callable[..., Browser]) -> None:
    bury(system, ["no"])
    browser = open_browser()
    system.redis.execute_command("ACL", "SETUSER", "default", "-hstrlen")
    try:
        assert "ValueError" in browser.text("/tasks")
    finally:
        system.redis.execute_command("ACL", "SETUSER", "default", "+hstrlen")


def test_a_row_says_how_long_and_where_a_task_ran(browser: Browser, system: System) -> None:
    bury(system, ["no"])
    page = browser.text("/tasks?status=failed")
    assert '<small class="hint">digger</small>' in page
    assert 'class="at"' in page


def test_lists_stay_small_with_previews(browser: Browser, system: System) -> None:
    data = json.dumps({"order": 10_000, "customer": "customer-123", "note": "x" * 200})
    bury(system, ["the bank did not answer within 30 s, and more text " * 3] * 60, data=data, tags=("eu", "vip"))
    cause = re.search(r"/dead-letters/\w+", browser.text("/dead-letters"))
    assert cause
    assert max(len(browser.text(path).encode()) for path in ("/tasks?status=failed", cause[0])) < 60_000
