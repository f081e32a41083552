"""What the pages of schedules say about their runs."""

from __future__ import annotations

import re
import time
from datetime import timedelta

from firmq.shared.domain.lock import FencingToken
from firmq.shared.domain.schedule import Schedule
from firmq.shared.stores.schedules import Fired, ScheduleStore
from tests.integration.dashboard.conftest import Browser
from tests.support.harness import System
from tests.support.keys import keys


def _run(system: System, store: ScheduleStore) -> str:
    """Lets a schedule be due a second after the last time."""
    before = store.get("tick").fired
    due = int((time.time() - 20 + before) * 1_000_000)
    system.redis.hset(keys.schedule("tick"), "due", due)
    system.redis.zadd(keys.SCHEDULES_DUE, {"tick": due})
    store.fire_due(FencingToken(), timedelta(seconds=60), Fired())
    return str(store.get("tick").last_task)


def test_the_last_runs_are_shown_with_their_outcomes(browser: Browser, system: System) -> None:
    store = ScheduleStore(system.scripts)
    store.put(Schedule(name="tick", type="noop", queue="low", interval=86_400))
    gone, seen, cancelled, waiting = (_run(system, store) for _ in range(4))
    for each in (seen, cancelled):
        system.queues.cancel(each, "test")
    store.follow(FencingToken())
    for each in (gone, seen):
        system.redis.delete(keys.rq_job(each))
    system.redis.zadd(keys.SCHEDULES_FOLLOWED, {"tick": 1})
    store.follow(FencingToken())
    page = browser.text("/schedules/tick")
    runs = re.search(r'<ol class="runs">(.*?)</ol>', page, re.DOTALL)
    assert runs
    shown = re.findall(r'<(a|span) class="run (?:gone )?s-(\w+)"', runs[1])
    assert shown == [("span", "removed"), ("span", "cancelled"), ("a", "cancelled"), ("a", "pending")]
    assert re.findall(r'href="/tasks/([^"]+)"', runs[1]) == [cancelled, waiting]
    assert 'aria-label="of the last 4 runs 0 failed">·––…</span>' in browser.text("/schedules")
