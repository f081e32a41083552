"""Bulk actions on the tasks of a search: in Redis, over HTTP, and on the page of tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from firmq.gateway.app import create_app
from firmq.shared.config.settings import Settings
from firmq.shared.domain.task import TaskState
from firmq.shared.features.bulk.store import BulkActions, Plan, Selection, Verb
from firmq.shared.stores.dead_letters import DeadLetters
from firmq.shared.stores.tasks import Filter, filter_of
from tests.integration.dashboard.conftest import Browser, bury
from tests.integration.stores.test_search import submit
from tests.support.harness import System
from tests.support.store import Store

S = TaskState


def test_a_bulk_action_takes_the_tasks_of_a_search(store: Store) -> None:
    wanted, other = submit(store, '{"customer": 42}'), submit(store, '{"customer": 43}')
    actions = BulkActions(store.scripts, DeadLetters(store.scripts, store.records))
    plan = Plan(verb=Verb.CANCEL, selection=Selection(wanted=filter_of({}, "data.customer:42")))
    action_id = actions.begin(plan, what="x", by="ann", rate=10)
    [action] = actions.unfinished()
    assert action.id == action_id
    while actions.step(action, 100)[1]:
        pass
    assert (store.state(wanted), store.state(other)) == (S.CANCELLED, S.PENDING)
    assert actions.unfinished() == []
    assert actions.get(action_id).state == "finished"  # type: ignore[union-attr]


def test_a_bulk_action_of_a_search_can_be_aborted(store: Store) -> None:
    submit(store)
    actions = BulkActions(store.scripts, DeadLetters(store.scripts, store.records))
    begun = actions.begin(
        Plan(verb=Verb.CANCEL, selection=Selection(wanted=filter_of({}, "age<1h"))), what="", by="", rate=1
    )
    assert actions.change(begun, "aborted")
    assert actions.unfinished() == []


def test_what_is_wanted_is_said_in_the_words_of_the_search() -> None:
    wanted = filter_of({}, 'state:failed data.customer:42 data.name:"a b" age>90m version:1.42')
    assert Selection(wanted=wanted).what == (
        'status=failed app_version=1.42 older_than=1 h 30 min data.customer:42 data.name:"a b"'
    )
    assert Selection(wanted=replace(Filter(), tag="old")).what == "tag=old"


def test_a_bulk_action_with_a_bad_search_is_refused(system: System) -> None:
    http = create_app(Settings(), system.redis).test_client()
    for wanted in ({"search": "colour:red"}, {"data": "x"}, {"search": ""}, {"type": ""}, {"newer_than": -1}):
        answer = http.post("/bulk-actions", json={"action": "cancel", "filter": wanted})
        assert answer.status_code == 422, answer.text


def test_a_bulk_action_takes_what_the_search_finds(browser: Browser, system: System) -> None:
    bury(system, ["declined"] * 2, data='{"customer": 42}')
    bury(system, ["declined"], data='{"customer": 43}')
    wanted: dict[str, Any] = {"scope": "filter", "search": "data.customer:42", "status": "failed"}
    page = browser.post("/bulk/review", verb="retry", **wanted).text
    assert "Retry 2 dead letters?" in page
    assert 'name="search" value="data.customer:42"' in page
    browser.post("/bulk", verb="retry", rate="100", **wanted)
    actions = BulkActions(system.scripts, system.dead_letters)
    [action] = actions.all()[0]
    assert (action.total, action.what) == (2, "status=failed data.customer:42")
    while actions.step(action, 100)[1]:
        pass
    assert system.records.counts()[TaskState.PENDING] == 2


def test_hidden_fields_select_no_tasks(open_browser: Callable[..., Browser], system: System) -> None:
    bury(system, ["declined"], data='{"card": {"number": "4111"}}')
    hidden = open_browser(dashboard_redact="number")
    answer = hidden.post("/bulk/review", verb="retry", scope="filter", search="data.card.number:4111")
    assert answer.status_code == 400
    assert "are hidden" in answer.text
