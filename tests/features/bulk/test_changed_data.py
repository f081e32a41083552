"""Changing the data of many dead letters: shown first, checked against the schema, and retried with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from firmq.dashboard.features.bulk.queries import BulkQueries
from firmq.shared.domain.lock import Lock
from firmq.shared.features.bulk import amending
from firmq.shared.features.bulk.amending import merged
from firmq.shared.features.bulk.store import BulkAction, Verb
from firmq.shared.stores.locks import HeldLock, NoLocks
from firmq.shared.stores.task_types import TaskType, TaskTypes
from firmq.worker.features.bulk.job import Bulk
from tests.integration.dashboard.conftest import Browser, bury
from tests.support.harness import System

ALL: dict[str, Any] = {"scope": "all", "verb": "retry", "rate": "1000"}
SCHEMA = {
    "type": "object",
    "properties": {"amount": {"type": "integer"}, "to": {"type": "object"}, "password": {"type": "string"}},
    "additionalProperties": False,
}


@pytest.fixture
def shop(open_browser: Callable[..., Browser], system: System) -> Browser:
    TaskTypes(system.redis).publish([TaskType(name="fail", schema=SCHEMA)])
    return open_browser()


def bulk_of(browser: Browser) -> BulkQueries:
    found: BulkQueries = browser.app.extensions["features"]["bulk"]
    return found


def carry_out(browser: Browser) -> BulkAction:
    lock: HeldLock | None = NoLocks().acquire(Lock(name="bulk", at_most=timedelta(seconds=30)))
    assert lock
    Bulk(bulk_of(browser).store, amend=bulk_of(browser).amendments.stored).run(lock)
    [action] = bulk_of(browser).store.all()[0]
    return action


def data_of(system: System, ids: list[str]) -> list[tuple[str, Any]]:
    found = [system.records.get(each) for each in ids]
    return [(each.summary.state.value, each.data) for each in found]


@pytest.mark.parametrize(
    ("data", "patch", "wanted"),
    [
        ({"a": 1, "b": 2}, {"a": 3}, {"a": 3, "b": 2}),
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        ({"a": 1}, {"b": None}, {"a": 1}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": None, "d": 3}}, {"a": {"c": 2, "d": 3}}),
        ({"a": 1}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": {"b": 1}}, {"a": [1]}, {"a": [1]}),
        ("text", {"a": 1}, {"a": 1}),
        ([1], {"a": {"b": None}}, {"a": {}}),
    ],
)
def test_a_patch_is_a_json_merge_patch(data: Any, patch: Any, wanted: Any) -> None:
    before = json.dumps(data)
    assert merged(data, patch) == wanted
    assert json.dumps(data) == before


def test_a_change_is_shown_before_and_after_and_changes_nothing(shop: Browser, system: System) -> None:
    ids = bury(system, [f"{n} no" for n in range(5)])
    page = shop.post("/bulk/review", **ALL, patch='{"amount": 4}').text
    assert page.count("{&#34;amount&#34;: 3}</code>") == page.count("{&#34;amount&#34;: 4}</code>") == 3
    assert "5 of 5 were checked" in page
    assert "Retry 5 with this change" in page
    assert data_of(system, ids) == [("failed", {"amount": 3})] * 5


def test_all_are_retried_with_the_changed_data_and_it_is_on_record(shop: Browser, system: System) -> None:
    ids = bury(system, [f"{n} no" for n in range(250)])
    shop.post("/bulk", **ALL, patch='{"amount": 4, "to": {"city": "Oslo"}, "password": "s3cret"}')
    action = carry_out(shop)
    assert (action.verb, action.state, action.done, action.unfit) == (Verb.RETRY, "finished", 250, 0)
    changed = {"amount": 4, "to": {"city": "Oslo"}, "password": "s3cret"}
    assert data_of(system, ids) == [("pending", changed)] * 250
    page = shop.text("/audit")
    assert "250 tasks, 1000 per second: all dead letters, with data changed by {&#34;amount&#34;: 4" in page
    assert "s3cret" not in page + shop.text(f"/bulk/{action.id}")


@pytest.mark.parametrize("patch", ['{"amount": "x"}', '{"amuont": 4}', "[1]", "{", '{"amount": ' + "1" * 11_000 + "}"])
def test_a_change_that_does_not_fit_begins_nothing(shop: Browser, system: System, patch: str) -> None:
    ids = bury(system, ["no"])
    assert shop.post("/bulk", **ALL, patch=patch).status_code == 400
    assert bulk_of(shop).store.all() == ([], [])
    assert data_of(system, ids) == [("failed", {"amount": 3})]


def test_one_that_was_not_checked_before_and_does_not_fit_stays_a_dead_letter(
    shop: Browser, system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    [odd] = bury(system, ["no"], data='{"unknown": 1}')
    ids = bury(system, ["no", "no", "no"])
    assert shop.post("/bulk", **ALL, patch='{"amount": 4}').status_code == 400
    monkeypatch.setattr(amending, "CHECKED", 3)
    shop.post("/bulk", **ALL, patch='{"amount": 4}')
    action = carry_out(shop)
    assert (action.done, action.passed, action.unfit) == (3, 1, 1)
    assert data_of(system, [odd, *ids]) == [("failed", {"unknown": 1}), *[("pending", {"amount": 4})] * 3]
    shop.forget()
    assert "1 still dead letters, because the changed data does not match" in shop.text(f"/bulk/{action.id}")


def test_a_step_takes_no_more_data_than_one_command_may_carry(
    shop: Browser, system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = bury(system, ["no"] * 5)
    monkeypatch.setattr(amending, "BYTES", 20)
    assert len(bulk_of(shop).amendments.stored(ids, {"amount": 4})) == 2
    shop.post("/bulk", **ALL, patch='{"amount": 4}')
    assert carry_out(shop).done == 5
    assert data_of(system, ids) == [("pending", {"amount": 4})] * 5


def test_a_mistake_does_not_quote_a_hidden_value(shop: Browser, system: System) -> None:
    bury(system, ["no"], data='{"password": 12345}')
    page = shop.post("/bulk/review", **ALL, patch='{"amount": 4}').text
    assert "the data does not match the schema" in page
    assert "12345" not in page
