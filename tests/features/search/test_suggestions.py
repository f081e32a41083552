"""Suggestions while a search is typed: pages, words, and values with their counts, bounded in number and bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from firmq.dashboard.features.search.suggestions import MOST, all_pages
from firmq.shared.stores.task_types import TaskType, TaskTypes
from tests.integration.dashboard.conftest import Browser, bury
from tests.support.harness import System


def _items(browser: Browser, search: str) -> list[dict[str, Any]]:
    browser.forget()
    answer = browser.get("/suggestions", query_string={"search": search})
    assert answer.status_code == 200
    assert len(answer.data) < 30_000
    items: list[dict[str, Any]] = answer.json["items"]  # type: ignore[index]
    assert len(items) <= MOST
    return items


def _labels(browser: Browser, search: str) -> list[tuple[str, int | None]]:
    return [(each["label"], each["count"]) for each in _items(browser, search)]


def test_pages_are_suggested_and_exist(browser: Browser) -> None:
    assert ("Go to Dead letters", None) in _labels(browser, "dead")
    assert "/dead-letters" in [each["path"] for each in _items(browser, "DEAD")]
    with browser.app.app_context():
        pages = all_pages()
    for path in pages:
        assert browser.get(path).status_code in (200, 503)


def test_words_are_suggested_and_completed(browser: Browser) -> None:
    [word] = [each for each in _items(browser, "stat") if each["label"] == "state:"]
    assert (word["search"], word["path"]) == ("state:", "")
    assert ("age>", None) in _labels(browser, "type:a ag")
    assert not any(label.startswith("Go to") for label, _ in _labels(browser, "type:a ta"))


def test_values_have_counts(browser: Browser, system: System) -> None:
    TaskTypes(system.redis).publish([TaskType(name=name, schema={}) for name in ("fail", "noop")])
    bury(system, ["declined"] * 3, data='{"customer": {"id": 42}, "plan": "a b"}', tags=("vip",))
    bury(system, ["timed out"], data='{"customer": {"id": 43}}', error="TimeoutError")
    assert _labels(browser, "type:f") == [("type:fail", 4)]
    assert _labels(browser, "fai")[0] == ("type:fail", 4)
    assert ("state:failed", 4) in _labels(browser, "state:")
    assert _labels(browser, "tag:") == [("tag:vip", 3)]
    assert _labels(browser, "error:") == [("error:ValueError", 3), ("error:TimeoutError", 1)]
    assert [count for _, count in _labels(browser, "cause:")] == [3, 1]
    assert _labels(browser, "data.") == [("data.customer.id:", 4), ("data.plan:", 3)]
    assert _labels(browser, "data.customer.id:") == [("data.customer.id:42", 3), ("data.customer.id:43", 1)]
    assert _labels(browser, "error:TimeoutError data.customer.id:") == [("data.customer.id:43", 1)]
    [plan] = _items(browser, "state:failed data.plan:")
    assert plan["search"] == 'state:failed data.plan:"a b"'
    assert f"row-{bury(system, ['x'], data=json.dumps({'plan': 'a b'}))[0]}" in browser.text(plan["path"])


def test_values_are_cut_and_bounded(browser: Browser, system: System) -> None:
    for number in range(MOST + 5):
        bury(system, ["no"], data=json.dumps({"text": f"{number:03}" + "x" * 150}))
    items = _items(browser, "data.text:")
    assert len(items) == MOST
    assert all(each["label"].endswith("…") and len(each["label"]) < 100 for each in items)
    assert len(items[0]["search"]) > 150


@pytest.mark.parametrize(
    "search", ["", "x" * 600, 'error:"a b', "colour:", "data.:", "state:failed data.a", "colour:red type:", "\x00"]
)
def test_anything_can_be_typed(browser: Browser, search: str) -> None:
    _items(browser, search)


def test_hidden_fields_are_not_suggested(open_browser: Callable[..., Browser], system: System) -> None:
    bury(system, ["no"], data='{"card": {"number": "4111"}, "plan": "a"}')
    hidden = open_browser(dashboard_redact="number")
    assert [label for label, _ in _labels(hidden, "data.")] == ["data.plan:"]
    assert _items(hidden, "data.card.number:") == []
    assert "4111" not in str(_items(hidden, "data.card.number:4 data."))
