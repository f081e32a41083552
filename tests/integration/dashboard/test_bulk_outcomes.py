"""What becomes of dead letters that a bulk action sent back, followed to the end of each."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator

import pytest

from firmq.gateway.app import create_app
from firmq.shared.config.settings import Settings
from firmq.shared.domain.limit import Limit
from firmq.shared.domain.task import TaskState
from firmq.shared.redis.client import text
from firmq.shared.stores.bulk_actions import BulkAction, BulkActions, Plan, Replay, Selection, Verb
from firmq.shared.stores.limits import Limits
from firmq.shared.stores.tasks import Filter
from firmq.worker.housekeeping.jobs.bulk import AT_ONCE, CALLS, FollowUp
from tests.integration.dashboard.conftest import Browser, bury
from tests.support.attempt_ends import ENDS
from tests.support.figures import judge_since
from tests.support.harness import System, wait_until
from tests.support.keys import keys

DEAD = Selection(wanted=Filter(state=TaskState.FAILED))


@pytest.fixture
def bulks(system: System) -> BulkActions:
    return BulkActions(system.scripts, system.dead_letters)


def _get(bulks: BulkActions, action_id: str) -> BulkAction:
    found = bulks.get(action_id)
    assert found
    return found


def _send_back(bulks: BulkActions, selection: Selection | None = None) -> BulkAction:
    """An action that has sent everything back."""
    action_id = bulks.begin(Plan(verb=Verb.RETRY, selection=selection or DEAD), what="all", by="eve", rate=1000)
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
    worker.wait(30)
    bury(system, ["yes"] * 4, task_type="echo", data='{"data": 1}')
    bury(system, ["no"] * 2, task_type="fail", data='{"message": "another"}')
    bury(system, ["no"] * 3, task_type="slowly", data='{"seconds": 300}')
    Limits(system.scripts).put("type:slowly", Limit(concurrency=1))
    action_id = bulks.begin(Plan(verb=Verb.RETRY, selection=DEAD), what="all", by="eve", rate=1000)
    system.start_worker(MAX_RETRIES="0", WORKER_EXECUTORS="2")
    system.start("housekeeper")
    waiting = {"running": 1, "limit type:slowly": 2}
    wait_until(lambda: _get(bulks, action_id).waiting_for == waiting, "it says what the rest waits for")
    found = _get(bulks, action_id)
    assert found.outcomes == {"completed": 4, "failed_same": 3, "failed_other": 2}
    assert (found.status, found.waiting, found.done) == ("following", 3, 12)
    page = browser.text(f"/bulk/{action_id}")
    assert {
        "4 completed",
        "3 failed again with the same cause",
        "2 failed again with another cause: see dead letters",
        "3 not ended: 2 throttled by the limit type:slowly, 1 running",
    } <= set(_texts(page))
    assert 's-following">following' in page


def test_what_failed_again_does_not_end_green(system: System, bulks: BulkActions, browser: Browser) -> None:
    bury(system, ["no"] * 3)
    action = _send_back(bulks)
    follow_up = FollowUp(bulks)
    follow_up.step()
    assert _get(bulks, action.id).waiting_for == {"pending": 3}
    _claim_and_fail(system)
    FollowUp(bulks).step()
    found = _get(bulks, action.id)
    assert (found.status, found.failed_again, found.waiting) == ("failed again", 3, 0)
    assert 's-failed-again">failed again' in browser.text("/bulk")
    assert bulks.followed() == []
    assert not system.redis.exists(keys.bulk_followed(action.id))


def _claim_and_fail(system: System) -> None:
    for row in system.scripts.call("claim", "digger", "again", 60_000_000, 200, 1 << 24, "normal", 200)[3]:
        about = '{"type": "ValueError", "message": "no", "place": "shop.pay", "pattern": "no"}'
        system.scripts.call("report", "digger", row[0], "again", *ENDS["failed"], "0", "{}", about, b"")
    system.redis.delete(keys.claim("digger"))


def test_two_that_follow_count_each_task_once(system: System, bulks: BulkActions) -> None:
    bury(system, ["no"] * 50)
    action = _send_back(bulks)
    first, second = FollowUp(bulks), FollowUp(bulks)
    first.step()
    _claim_and_fail(system)
    second.step()
    first.passes.clear()
    first.step()
    assert _get(bulks, action.id).outcomes == {"failed_same": 50}


def test_a_hundred_thousand_are_followed_in_bounded_steps(system: System, bulks: BulkActions) -> None:
    bury(system, ["no"])
    action = _send_back(bulks)
    value = system.redis.hvals(keys.bulk_followed(action.id))[0]
    [task] = system.redis.hkeys(keys.bulk_followed(action.id))
    for first in range(0, 100_000, 10_000):
        many = {f"gone-{number}": value for number in range(first, first + 10_000)}
        system.redis.hset(keys.bulk_followed(action.id), mapping=many)  # type: ignore[arg-type]  # bytes are fine
    assert int(system.redis.memory_usage(keys.bulk_followed(action.id)) or 0) < 20 << 20
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
    assert system.redis.hkeys(keys.bulk_followed(action.id)) == [task]
    assert _get(bulks, action.id).outcomes == {"removed": 100_000}


def test_an_action_that_is_forgotten_is_followed_no_more(system: System, bulks: BulkActions) -> None:
    bury(system, ["no"])
    action = _send_back(bulks)
    system.redis.delete(keys.bulk(action.id))
    FollowUp(bulks).step()
    assert bulks.followed() == []
    assert not system.redis.exists(keys.bulk(action.id), keys.bulk_followed(action.id))


def _cause(system: System, task: str) -> str:
    return text(system.redis.hget(keys.FAILURE_GROUP_OF, task))


def test_each_cause_has_its_outcome_and_its_earlier_replays(
    system: System, bulks: BulkActions, browser: Browser
) -> None:
    same, *_ = bury(system, ["no"] * 3)
    other, *_ = bury(system, ["no"] * 2, error="KeyError")
    of_same, of_other = _cause(system, same), _cause(system, other)
    action = _send_back(bulks)
    _claim_and_fail(system)
    FollowUp(bulks).step()
    assert _get(bulks, action.id).replays == {
        of_same: Replay(3, {"failed_same": 3}),
        of_other: Replay(2, {"failed_other": 2}),
    }
    page = browser.text(f"/bulk/{action.id}")
    assert f'href="/dead-letters/{of_same}"' in page
    left = browser.text(f"/dead-letters/{of_other}")
    assert "No dead letter of this cause is left; the first was seen" in left
    assert f'href="/bulk/{action.id}"' in left
    again = _send_back(bulks, Selection(wanted=Filter(state=TaskState.FAILED, cause=of_same)))
    browser.forget()
    both = browser.text(f"/dead-letters/{of_same}")
    assert both.index(f"/bulk/{again.id}") < both.index(f"/bulk/{action.id}"), "the latest replay is first"
    http = create_app(Settings(), system.redis).test_client()
    shown = http.get(f"/bulk-actions/{action.id}").json or {}
    assert shown["replays"] == [
        {"cause": of_same, "retried": 3, "outcomes": {"failed_same": 3}, "waiting": 0},
        {"cause": of_other, "retried": 2, "outcomes": {"failed_other": 2}, "waiting": 0},
    ]


def test_an_action_of_very_many_causes_counts_the_first_of_them(system: System, bulks: BulkActions) -> None:
    for number in range(200):
        bury(system, ["no"], error=f"Error{number}")
    action = _send_back(bulks)
    _claim_and_fail(system)
    FollowUp(bulks).step()
    found = _get(bulks, action.id)
    assert found.outcomes == {"failed_other": 200}
    assert 100 < len(found.replays) <= 150
    assert all(each == Replay(1, {"failed_other": 1}) for each in found.replays.values())
