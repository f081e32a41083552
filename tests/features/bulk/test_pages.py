"""Acting on many dead letters: told first, done at a rate, paused, aborted, and carried on by whoever is there."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from firmq.shared.domain.lock import FencingToken, Lock
from firmq.shared.domain.task import BatchPlace, TaskState
from firmq.shared.errors import StepRefused
from firmq.shared.features.bulk.keys import BulkKeys
from firmq.shared.features.bulk.store import BulkActions, Plan, Selection, Verb
from firmq.shared.redis.client import text
from firmq.shared.stores.batches import Batches, BatchTerms
from firmq.shared.stores.locks import HeldLock, NoLocks
from firmq.shared.stores.pauses import of_type
from firmq.shared.stores.tasks import Filter
from firmq.worker.features.bulk.job import Bulk, FollowUp
from tests.integration.dashboard.conftest import Browser, bury
from tests.integration.dashboard.test_operators_view import suspend
from tests.integration.dashboard.test_sign_in import USERS, _sign_in
from tests.support.attempt_ends import claiming
from tests.support.harness import System
from tests.support.keys import keys

BULK = BulkKeys.beside(keys)

DEAD = Selection(wanted=Filter(state=TaskState.FAILED))


def _held() -> HeldLock:
    held = NoLocks().acquire(Lock(name="bulk", at_most=timedelta(seconds=30)))
    assert held
    return held


def _bulks(system: System) -> BulkActions:
    return BulkActions(system.scripts, system.dead_letters)


def _failed(system: System) -> int:
    return int(system.redis.zcard(keys.ended(TaskState.FAILED)))


def _group(browser: Browser) -> str:
    found = re.search(r"/dead-letters/(\w+)", browser.text("/dead-letters"))
    assert found
    return found[1]


def test_it_is_told_first_how_many_and_which(browser: Browser, system: System) -> None:
    ids = bury(system, [f"{n} no" for n in range(30)])
    page = browser.post("/bulk/review", scope="group", cause=_group(browser), verb="retry").text
    assert "Retry 30 dead letters?" in page
    assert sum(each[-8:] in page for each in ids) == 20
    assert _failed(system) == 30


def test_selected_ones_are_done_and_the_rest_stays(browser: Browser, system: System) -> None:
    ids = bury(system, [f"{n} no" for n in range(10)])
    page = browser.post("/bulk/review", scope="picked", id=ids[:3], verb="delete").text
    assert "Delete 3 dead letters?" in page
    browser.post("/bulk", scope="picked", id=ids[:3], verb="delete", rate="1000")
    Bulk(_bulks(system)).run(_held())
    assert _failed(system) == 7
    [action] = _bulks(system).all()[0]
    assert (action.state, action.done, action.total) == ("finished", 3, 3)


def test_an_address_does_not_lead_to_what_is_stored_beside_an_action(browser: Browser, system: System) -> None:
    ids = bury(system, ["no", "no"])
    browser.post("/bulk", scope="picked", id=ids, verb="retry", rate="1")
    [action] = _bulks(system).all()[0]
    assert browser.get(f"/bulk/{action.id}:ids").status_code == 404
    assert system.redis.type(BULK.bulk_ids(action.id)) == b"zset"


def test_a_group_without_a_name_is_not_all_dead_letters(browser: Browser, system: System) -> None:
    bury(system, ["no"])
    for path in ("/bulk/review", "/bulk"):
        assert browser.post(path, scope="group", verb="delete", rate="10").status_code == 400
        assert browser.post(path, scope="group", verb="delete", rate="10", cause="").status_code == 400
    assert _bulks(system).all() == ([], [])


def test_nothing_selected_is_refused(browser: Browser) -> None:
    assert browser.post("/bulk/review", scope="picked", verb="retry").status_code == 400
    assert browser.post("/bulk", scope="all", verb="retry", rate="10").status_code == 400
    assert browser.post("/bulk/review", scope="all", verb="explode").status_code == 400


class _Time:
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def clock(self) -> float:
        return self.now


def test_the_rate_is_kept_through_a_pause(system: System) -> None:
    bury(system, [f"{n} no" for n in range(300)])
    bulks, time = _bulks(system), _Time()
    action = bulks.begin(Plan(verb=Verb.RETRY, selection=DEAD), what="all", by="eve", rate=100)
    job = Bulk(bulks, time.sleep, time.clock)
    assert job.run(_held()).more
    assert 90 <= 300 - _failed(system) <= 115
    bulks.change(action, "paused")
    paused_at = _failed(system)
    assert not job.run(_held()).more
    time.sleep(60)
    assert _failed(system) == paused_at
    bulks.change(action, "running")
    job.run(_held())
    assert paused_at - _failed(system) <= 115, "no burst for the time it was paused"
    while job.run(_held()).more:
        pass
    assert _failed(system) == 0


def test_another_process_continues_behind_the_last_step(system: System) -> None:
    bury(system, [f"{n} no" for n in range(50)])
    bulks = _bulks(system)
    bulks.begin(Plan(verb=Verb.RETRY, selection=DEAD), what="all", by="eve", rate=1000)
    [action] = bulks.unfinished()
    assert bulks.step(action, 10) == (10, True)
    assert _bulks(system).step(action, 100) == (40, False)
    assert bulks.unfinished() == []
    [ended] = bulks.all()[0]
    assert (ended.state, ended.done) == ("finished", 50)


def test_a_step_under_an_ended_lock_changes_nothing(system: System) -> None:
    bury(system, ["no"] * 3)
    bulks = _bulks(system)
    bulks.begin(Plan(verb=Verb.DELETE, selection=DEAD), what="all", by="eve", rate=1000)
    [action] = bulks.unfinished()
    with pytest.raises(StepRefused):
        bulks.step(action, 10, FencingToken("bulk", "an older holder's"))
    assert _failed(system) == 3


def test_what_fails_again_is_not_retried_by_the_same_action(system: System) -> None:
    bury(system, ["no"] * 5)
    bulks = _bulks(system)
    bulks.begin(Plan(verb=Verb.RETRY, selection=DEAD), what="all", by="eve", rate=1000)
    late = bury(system, ["no"] * 2)
    [action] = bulks.unfinished()
    bulks.step(action, 100)
    bulks.step(action, 100)
    assert _failed(system) == len(late)


def test_picked_ones_that_failed_again_before_they_were_counted_are_not_retried_twice(system: System) -> None:
    ids = bury(system, [f"{n} no" for n in range(5)])
    bulks = _bulks(system)
    action = bulks.begin(Plan(verb=Verb.RETRY, selection=Selection(ids=tuple(ids))), what="five", by="eve", rate=100)
    # Whoever did this died before it could write it down, and they have failed again since, with another.
    system.dead_letters.requeue_many(ids)
    bury(system, ["no"])
    found = bulks.get(action)
    while found and found.open:
        bulks.step(found, 100)
        found = bulks.get(action)
    assert found
    assert (found.done, found.passed) == (0, 5)
    assert _failed(system) == 6


def test_one_that_cannot_be_retried_does_not_hold_up_the_rest(system: System) -> None:
    ids = bury(system, ["no"] * 6)
    system.redis.hdel(keys.rq_job(ids[0]), "data")
    bulks = _bulks(system)
    bulks.begin(Plan(verb=Verb.RETRY, selection=DEAD), what="all", by="eve", rate=1000)
    [action] = bulks.unfinished()
    for _ in range(5):
        bulks.step(action, 2)
    [ended] = bulks.all()[0]
    assert (ended.state, ended.done, ended.passed) == ("finished", 5, 1)


def test_a_list_that_shrinks_during_paging_skips_nothing(system: System) -> None:
    ids = bury(system, ["no"] * 8)
    stuck = [text(each) for each in system.redis.zrange(keys.ended(TaskState.FAILED), 0, 1)]
    for each in stuck:
        system.redis.hdel(keys.rq_job(each), "data")
    bulks = _bulks(system)
    bulks.begin(Plan(verb=Verb.RETRY, selection=DEAD), what="all", by="eve", rate=1000)
    [action] = bulks.unfinished()
    bulks.step(action, 3)
    for each in stuck:
        system.dead_letters.purge(each)
    for _ in range(4):
        bulks.step(action, 3)
    [ended] = bulks.all()[0]
    assert (ended.state, ended.done, ended.passed) == ("finished", len(ids) - 2, 2)
    assert _failed(system) == 0


def _bury_in_a_stopped_batch(system: System) -> str:
    Batches(system.scripts).open("batch", BatchTerms(stop_on_error=1))
    [dead] = bury(system, ["no"], batch=BatchPlace(batch_id="batch", index=0))
    return dead


@pytest.mark.parametrize("picked", [False, True], ids=["all", "picked"])
def test_those_of_a_stopped_batch_stay_and_it_is_told_why(browser: Browser, system: System, picked: bool) -> None:
    stays = _bury_in_a_stopped_batch(system)
    ids = bury(system, ["no"] * 3)
    system.redis.hdel(keys.rq_job(ids[0]), "data")  # this one cannot be retried either
    bulks = _bulks(system)
    selection = Selection(ids=(stays, *ids)) if picked else DEAD
    bulks.begin(Plan(verb=Verb.RETRY, selection=selection), what="these", by="eve", rate=1000)
    [action] = bulks.unfinished()
    for _ in range(5):
        bulks.step(action, 2)
    [ended] = bulks.all()[0]
    assert (ended.state, ended.done, ended.passed) == ("finished", 2, 2)
    assert system.records.state(stays) is TaskState.FAILED
    shown = re.sub("<[^>]+>", "", browser.text("/bulk"))
    assert "2 skipped: no longer dead letters, or their batches are stopped: retry those" in shown


def test_one_of_a_stopped_batch_is_retried_neither_as_it_is_nor_with_other_data(
    browser: Browser, system: System
) -> None:
    dead = _bury_in_a_stopped_batch(system)
    for answer in (browser.post(f"/tasks/{dead}/retry"), browser.post(f"/tasks/{dead}/retry-with", data="{}")):
        assert answer.status_code == 409
        assert "retry the batch" in answer.text
    assert system.records.get(dead).data == {"amount": 3}
    assert _failed(system) == 1


def test_an_id_that_is_none_does_not_hold_up_the_rest(system: System) -> None:
    ids = bury(system, ["no", "no"])
    bulks = _bulks(system)
    for selection in (Selection(ids=tuple(ids[:1])), DEAD):
        action_id = bulks.begin(Plan(verb=Verb.RETRY, selection=selection), what="some", by="eve", rate=100)
        system.redis.zadd(BULK.bulk_ids(action_id) if selection.ids else keys.ended(TaskState.FAILED), {b"\xff\xfe": 0})
        action = bulks.get(action_id)
        assert action
        for _ in range(10):
            bulks.step(action, 1)
        ended = bulks.get(action_id)
        assert ended
        assert (ended.state, ended.done, ended.passed) == ("finished", 1, 1)
    assert _failed(system) == 1, "the one that is none"


def test_an_aborted_one_stays_aborted(browser: Browser, system: System) -> None:
    bury(system, ["no"] * 5)
    bulks = _bulks(system)
    action = bulks.begin(Plan(verb=Verb.DELETE, selection=DEAD), what="all", by="eve", rate=1)
    assert "aborted" in browser.post(f"/bulk/{action}/abort").text
    assert browser.post(f"/bulk/{action}/resume").status_code == 400
    found = bulks.get(action)
    assert found
    assert bulks.step(found, 10) == (0, False)
    assert _failed(system) == 5


def test_a_pause_at_the_last_step_reopens_no_finished_action(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    bury(system, ["no"])
    bulks = _bulks(system)
    action_id = bulks.begin(Plan(verb=Verb.RETRY, selection=DEAD), what="all", by="eve", rate=1000)
    [action] = bulks.unfinished()
    ask: Any = bulks.redis.execute_command

    def ask_and_be_slow(*command: Any, **options: Any) -> Any:
        answer = ask(*command, **options)
        monkeypatch.undo()
        for _ in range(2):
            bulks.step(action, 100)
        return answer

    monkeypatch.setattr(bulks.redis, "execute_command", ask_and_be_slow)
    bulks.change(action_id, "paused")
    found = bulks.get(action_id)
    assert found
    assert [each.id for each in bulks.unfinished()] == ([action_id] if found.open else [])


@pytest.fixture
def guarded(open_browser: Callable[..., Browser]) -> Browser:
    return open_browser(dashboard_users=USERS)


def test_bulk_deletion_is_for_admins(guarded: Browser, system: System) -> None:
    bury(system, ["no"])
    _sign_in(guarded, "otto")
    assert guarded.post("/bulk", scope="all", verb="delete", rate="1").status_code == 403
    assert "Delete all" not in guarded.text("/dead-letters")


def test_going_on_with_a_bulk_deletion_is_for_admins_and_stopping_it_is_not(guarded: Browser, system: System) -> None:
    bury(system, ["no"])
    _sign_in(guarded, "anna")
    guarded.post("/bulk", scope="all", verb="delete", rate="1")
    bulks = BulkActions(system.scripts, system.dead_letters)
    [action] = bulks.unfinished()
    for name, change, status, state in (
        ("otto", "pause", 302, "paused"),
        ("otto", "resume", 403, "paused"),
        ("anna", "resume", 302, "running"),
        ("otto", "abort", 302, "aborted"),
    ):
        _sign_in(guarded, name)
        shown = f"/bulk/{action.id}/{change}" in guarded.text(f"/bulk/{action.id}")
        assert shown == (status == 302)
        assert guarded.post(f"/bulk/{action.id}/{change}", follow=False).status_code == status
        found = bulks.get(action.id)
        assert found is not None
        assert found.state == state


def test_retried_tasks_of_a_paused_type_say_so(system: System, browser: Browser) -> None:
    bury(system, ["no"] * 3)
    bulks = _bulks(system)
    action_id = bulks.begin(Plan(verb=Verb.RETRY, selection=DEAD), what="all", by="eve", rate=1000)
    system.queues.pauses.pause(of_type("fail"), "x")
    action = bulks.get(action_id)
    assert action
    bulks.step(action, 200)
    assert system.scripts.call("claim", *claiming("digger", "again", 60_000_000, 200, 1 << 24, "normal", 200))[3] == []
    FollowUp(bulks).step()
    assert "3 not ended: see <a" in browser.text(f"/bulk/{action_id}")
    assert "paused" in browser.text("/")


def test_tasks_that_wait_for_a_person_are_told(browser: Browser, system: System) -> None:
    suspend(system, "signal approval")
    suspend(system, "sleep pause")
    page = browser.post("/bulk/review", scope="filter", status="waiting", verb="cancel").text
    assert "Cancel 1 task?" in page
