"""The timeline of an incident: every source on one axis, as sentences, bounded, and with what is missing."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from flask.testing import FlaskClient

from firmq.gateway.app import create_app
from firmq.shared.config.settings import Settings
from firmq.shared.features.timeline.incident import MOST
from firmq.shared.stores.audit import Audit
from firmq.shared.stores.task_types import types_publish
from firmq.shared.stores.workers import announce
from tests.integration.dashboard.conftest import Browser, bury
from tests.support.features import rows
from tests.support.harness import System
from tests.support.keys import keys


@pytest.fixture
def http(system: System) -> FlaskClient:
    return create_app(Settings(), system.redis).test_client()


def _show(http: FlaskClient, **query: str) -> dict[str, Any]:
    answer = http.get("/timeline", query_string=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.get_json()
    return found


def _serve(system: System, version: str) -> None:
    types_publish(system.scripts, "set", "h", True, [("noop", "v", "{}")])
    about = json.dumps({"name": "w", "app_version": version})
    announce(system.scripts, "w", 60, about, "[]", '["state", "idle"]', 60, "set", "h")


def test_everything_is_on_one_axis_as_sentences(http: FlaskClient, system: System) -> None:
    system.submit("noop", queue="low")
    _serve(system, "1.42")
    bury(system, ["card 7 declined"], task_type="charge-card", error="Declined")
    http.post("/queues/low/pause", json={"reason": "a bad release"})
    http.put("/limits/types/charge-card", json={"concurrency": 3})
    more = [title for happen in rows("TIMELINE") for title in happen(http)]
    found = _show(http)
    assert (found["complete"], found["incomplete"]) == (True, [])
    titles = [(each["kind"], each["title"]) for each in found["events"]]
    assert [each["at"] for each in found["events"]] == sorted(each["at"] for each in found["events"])
    assert set(titles) == {
        ("deploy", "Version 1.42 began to serve"),
        ("cause", "charge-card failed for the first time with Declined"),
        ("pause", "The REST API paused the queue low"),
        ("limit", "The REST API set the limit type:charge-card"),
        *more,
    }
    [pause] = [each for each in found["events"] if each["kind"] == "pause"]
    assert "a bad release" in pause["detail"]


def test_lost_workers_are_on_it(http: FlaskClient, system: System) -> None:
    now = system.scripts.now_us()
    about = {"name": "w", "host": "h", "pid": 1, "version": "1", "queues": [], "executors": 1, "running": []}
    started = datetime.now().astimezone().isoformat()
    system.redis.set(keys.worker("w"), json.dumps({**about, "started_at": started}))
    system.redis.zadd(keys.LOST_WORKERS, {"w": now - 60_000_000})
    [event] = _show(http)["events"]
    assert (event["kind"], event["title"]) == ("worker", "The worker w was lost")


@pytest.mark.parametrize(
    ("what", "about", "title"),
    [
        ("paused queue", "low", "ann paused the queue low"),
        ("resumed type", "charge-card", "ann resumed the task type charge-card"),
        ("removed limit", "key:shop", "ann removed the limit key:shop"),
        ("retried", "abc", "ann retried the task abc"),
        ("retried with other data", "abc", "ann retried the task abc with other data"),
        ("ran now", "abc", "ann ran the task abc now"),
        ("ran schedule now", "nightly", "ann ran the schedule nightly now"),
        ("retried failures of batch", "b", "ann retried the failures of the batch b"),
        ("moved RQ's jobs out of queue", "low", "ann moved RQ's jobs out of the queue low"),
        ("drained worker", "w", "ann drained the worker w"),
        ("stopped bulk action", "x", "ann stopped the bulk action x"),
        ("unlocked", "lock ttl of hk-9, token 3", "ann released the lock ttl of hk-9, token 3"),
        ("signalled", "abc", "ann signalled the task abc"),
        ("revoked API key", "k1", "ann revoked the API key k1"),
        ("something new", "x", "ann something new x"),
    ],
)
def test_what_people_did_is_a_sentence(http: FlaskClient, system: System, what: str, about: str, title: str) -> None:
    Audit(system.redis).record("ann", what, about)
    assert [each["title"] for each in _show(http)["events"]] == [title]


@pytest.mark.parametrize(
    "query",
    [
        {"until": "1969-12-31T23:59:59Z"},
        {"until": "0001-01-01T00:00:00+14:00"},
        {"until": "9999-12-31T23:59:59Z"},
        {"until": (datetime.now().astimezone() + timedelta(days=3)).isoformat()},
        {"since": "2030-01-02T00:00:00Z", "until": "2030-01-01T00:00:00Z"},
        {"since": "2001-01-01T00:00:00Z"},
        {"since": "1960-01-01T00:00:00Z", "until": "1970-01-02T00:00:00Z"},
        {"since": "yesterday"},
    ],
)
def test_an_impossible_range_is_refused(http: FlaskClient, browser: Browser, query: dict[str, str]) -> None:
    for path in ("/timeline", "/timeline.md"):
        assert http.get(path, query_string=query).status_code == 422
        assert browser.get(path, query_string=query).status_code == 422


def test_only_events_of_the_range_are_shown(http: FlaskClient, system: System) -> None:
    _serve(system, "1.42")
    Audit(system.redis).record("ann", "paused queue", "low")
    assert _show(http, since="1970-01-01T00:00:00Z", until="1970-01-20T00:00:00Z")["events"] == []
    assert len(_show(http, since=(datetime.now().astimezone() - timedelta(days=1)).isoformat())["events"]) == 2


def test_what_was_cut_is_said(http: FlaskClient, system: System) -> None:
    audit = Audit(system.redis)
    for number in range(MOST + 1):
        audit.record("ann", "retried", f"t{number}")
    found = _show(http)
    assert not found["complete"]
    assert found["incomplete"] == [
        f"Only the latest {MOST} changes that people made are shown: choose a shorter range."
    ]
    assert len(found["events"]) == MOST
    assert found["events"][-1]["title"] == f"ann retried the task t{MOST}"
    _serve(system, "1.42")
    found = _show(http)
    assert any("events are shown" in each for each in found["incomplete"])
    assert len(found["events"]) == MOST
    old = (datetime.now().astimezone() - timedelta(days=20)).isoformat()
    assert any("Lost workers are on record for 7 days" in each for each in _show(http, since=old)["incomplete"])


def test_it_is_exported_as_markdown(http: FlaskClient, browser: Browser, system: System) -> None:
    Audit(system.redis).record("ann", "paused queue", "low", "a *bad*\n[release](http://evil)")
    text = http.get("/timeline.md").text
    assert text.startswith("# Timeline from 20")
    assert "ann paused the queue low: a \\*bad\\* \\[release\\](http://evil)\n" in text
    assert "Nothing happened." in http.get("/timeline.md?until=1970-01-20T00:00:00Z").text
    assert browser.get("/timeline.md").text.splitlines()[2] == text.splitlines()[2]
    page = browser.text("/timeline")
    assert "ann paused the queue low" in page
    assert 'data-copy-from="/timeline.md"' in page
    assert "Nothing happened" in browser.text("/timeline?since=1970-01-02T00:00:00Z&until=1970-01-03T00:00:00Z")


def test_the_page_stays_small(browser: Browser, system: System) -> None:
    for number in range(MOST + 5):
        Audit(system.redis).record("a" * 100, "retried with other data", f"{number}" * 30, "d" * 500)
    assert len(browser.get("/timeline").data) <= 60_000
