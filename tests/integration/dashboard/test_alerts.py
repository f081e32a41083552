"""What the overview asks people to do about tasks that wait."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from firmq.shared.domain.limit import Limit
from firmq.shared.stores.limits import Limits
from firmq.shared.stores.workers import QueueExecutors, WorkerInfo
from tests.integration.dashboard.conftest import Browser
from tests.support.harness import System, wait_until
from tests.support.keys import keys

SIX_MINUTES = int(timedelta(minutes=6).total_seconds() * 1_000_000)


def test_more_workers_are_asked_for_only_where_they_would_help(browser: Browser, system: System) -> None:
    system.start_worker(WORKER_QUEUES="normal", WORKER_EXECUTORS="2")
    Limits(system.scripts).put("type:slowly", Limit(concurrency=1))
    ids = system.submit_many([("slowly", '{"seconds": 300}')] * 3)
    old = system.scripts.now_us() - SIX_MINUTES
    wait_until(lambda: system.redis.zcard(keys.throttled("normal")) == 2, "the limit holds the others back")
    system.redis.zadd(keys.throttled("normal"), dict.fromkeys(ids[1:], old))
    page = browser.text("/")
    assert "2 tasks are throttled in normal, the oldest for 6 min" in page
    assert "Start more workers" not in page
    waiting = system.submit("noop", queue="low")
    system.redis.zadd(keys.pending("low"), {waiting: old})
    browser.forget()
    page = browser.text("/")
    assert "The oldest task in low has waited 6 min" in page
    assert "Start more workers" in page


def test_a_queue_that_uses_all_executors_that_it_may_is_said_with_the_setting(browser: Browser, system: System) -> None:
    waiting = system.submit("noop", queue="low")
    system.redis.zadd(keys.pending("low"), {waiting: system.scripts.now_us() - SIX_MINUTES})
    full = QueueExecutors(queue="low", in_use=1, limit=1)
    about = WorkerInfo(
        name="w1",
        host="h",
        pid=1,
        version="1",
        queues=("low",),
        executors=2,
        started_at=datetime.now(UTC),
        queue_executors=(full,),
    )
    system.workers.announce(about)
    page = browser.text("/")
    assert "The oldest task in low has waited 6 min" in page
    assert "All executors that QUEUE_EXECUTORS allows are busy" in page
