"""What becomes of dead letters that a bulk action sent back, followed to the end of each."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator

import pytest

from firmq.shared.domain.limit import Limit
from firmq.shared.domain.task import TaskState
from firmq.shared.features.bulk.keys import BulkKeys
from firmq.shared.features.bulk.store import BulkAction, BulkActions, Plan, Selection, Verb
from firmq.shared.stores.limits import Limits
from firmq.shared.stores.tasks import Filter
from firmq.worker.features.bulk.job import AT_ONCE, CALLS, FollowUp
from tests.integration.dashboard.conftest import Browser, bury
from tests.support.attempt_ends import claiming, ended, report
from tests.support.figures import judge_since
from tests.support.harness import System, wait_until
from tests.support.keys import keys

BULK = BulkKeys.beside(keys)

DEAD = Selection(wanted=Filter(state=TaskState.FAILED))


@pytest.fixture
def bulks(system: System) -> BulkActions:
    return BulkActions(system.scripts, system.dead_letters)


def _get(bulks: BulkActions, action_id: str) -> BulkAction:
    found = bulks.get(action_id)
    assert found
    return found


def _send_back(bulks: BulkActions) -> BulkAction:
    """An action that has sent everything back."""
    action_id = bulks.begin(Plan(verb=Verb.RETRY, selection=DEAD), what="all", by="eve", rate=1000)
    while (found := _get(bulks, action_id)).open:
        bulks.step(found, 200)
    return found


def _texts(page: str) -> Iterator[str]:
    for each in re.findall(r"<li(?: [^>]*)?>(.*?)</li>", page, re.DOTALL):
        yield " ".join(re.sub("<[^>]+>", "", each).split())


def test_a_replay_says_what_became_of_each(system: System, bulks: BulkActions, browser: Browser) -> None:
    worker = system.start_worker(MAX_RETRIES="0", WORKER_EXECUTORS="2")
    for each in system.submit_many([("fail", '{"message": "no luck"}')] * 3):
        assert system.ended(each).summary.state is TaskState.FAILED
    worker.send_signal(signal.SIGTERM)
    worker.wait(90)
    bury(system, ["yes"] * 4, task_type="echo", data='{"data": 1}')
    bury(system, ["no"] * 2, task_type="fail", data='{"message": "another"}')
    bury(system, ["no"] * 3, task_type="slowly", data='{"seconds": 300}')
    Limits(system.scripts).put("type:slowly", Limit(concurrency=1))
    action_id = bulks.begin(Plan(verb=Verb.RETRY, selection=DEAD), what="all", by="eve", rate=1000)
    system.start_worker(MAX_RETRIES="0", WORKER_EXECUTORS="2")
    system.start("housekeeper")
    wait_until(lambda: _get(bulks, action_id).ended == 9, "those that can end have ended")
    found = _get(bulks, action_id)
    assert found.outcomes == {"completed": 4, "failed_same": 3, "failed_other": 2}
    assert (found.status, found.waiting, found.done) == ("following", 3, 12)
    page = browser.text(f"/bulk/{action_id}")
    assert {
        "4 completed",
        "3 failed again with the same cause",
        "2 failed again with another cause: see dead letters",
        "3 not ended: see why tasks wait",
    } <= set(_texts(page))
    assert 's-following">following' in page


def test_what_failed_again_does_not_end_green(system: System, bulks: BulkActions, browser: Browser) -> None:
    bury(system, ["no"] * 3)
    action = _send_back(bulks)
    FollowUp(bulks).step()
    assert (_get(bulks, action.id).outcomes, _get(bulks, action.id).waiting) == ({}, 3)
    _claim_and_fail(system)
    FollowUp(bulks).step()
    found = _get(bulks, action.id)
    assert (found.status, found.failed_again, found.waiting) == ("failed again", 3, 0)
    assert 's-failed-again">failed again' in browser.text("/bulk")
    assert bulks.followed() == []
    assert not system.redis.exists(BULK.bulk_followed(action.id))


def _claim_and_fail(system: System) -> None:
    for row in system.scripts.call("claim", *claiming("digger", "again", 60_000_000, 200, 1 << 24, "normal", 200))[3]:
        about = '{"type": "ValueError", "message": "no", "place": "shop.pay", "pattern": "no"}'
        report(system.scripts, ended(row[0], "again", "failed", error=about), worker="digger")
    system.redis.delete(keys.claim("digger"))


def test_two_that_follow_count_each_task_once(system: System, bulks: BulkActions) -> None:
    bury(system, ["no"] * 50)
    action = _send_back(bulks)
    first, second = FollowUp(bulks), FollowUp(bulks)
    first.step()
    _claim_and_fail(system)
    second.step()
    first.cursors.clear()
    first.step()
    assert _get(bulks, action.id).outcomes == {"failed_same": 50}


def test_a_hundred_thousand_are_followed_in_bounded_steps(system: System, bulks: BulkActions) -> None:
    bury(system, ["no"])
    action = _send_back(bulks)
    value = system.redis.hvals(BULK.bulk_followed(action.id))[0]
    [task] = system.redis.hkeys(BULK.bulk_followed(action.id))
    for first in range(0, 100_000, 10_000):
        many = {f"gone-{number}": value for number in range(first, first + 10_000)}
        system.redis.hset(BULK.bulk_followed(action.id), mapping=many)  # type: ignore[arg-type]  # bytes are fine
    assert int(system.redis.memory_usage(BULK.bulk_followed(action.id)) or 0) < 20 << 20
    follow_up = FollowUp(bulks)
    system.redis.config_resetstat()
    began = time.monotonic()
    follow_up.step()
    judge_since("one step over 100,000 tasks", began, 2)
    calls = system.redis.info("commandstats")
    assert calls["cmdstat_hscan"]["calls"] == CALLS
    assert calls["cmdstat_hmget"]["calls"] < 2 * CALLS * AT_ONCE
    for _ in range(100):
        follow_up.step()
    assert system.redis.hkeys(BULK.bulk_followed(action.id)) == [task]
    assert _get(bulks, action.id).outcomes == {"removed": 100_000}


def test_an_action_that_is_forgotten_is_followed_no_more(system: System, bulks: BulkActions) -> None:
    bury(system, ["no"])
    action = _send_back(bulks)
    system.redis.delete(BULK.bulk(action.id))
    FollowUp(bulks).step()
    assert bulks.followed() == []
    assert not system.redis.exists(BULK.bulk(action.id), BULK.bulk_followed(action.id))
