"""Tasks and schedules made with forms: once each, with hidden values kept hidden, and never over another's change."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape
from typing import Any

import pytest

from firmq.shared.domain.schedule import Schedule
from firmq.shared.domain.task import TaskState
from firmq.shared.errors import ScheduleChanged
from firmq.shared.stores.audit import Audit
from firmq.shared.stores.schedules import ScheduleStore
from firmq.shared.stores.task_types import TaskType, TaskTypes
from tests.integration.dashboard.conftest import Browser, bury
from tests.support.harness import System
from tests.support.keys import keys

SCHEMA = {
    "type": "object",
    "properties": {
        "order": {"type": "integer", "minimum": 1},
        "password": {"type": "string", "maxLength": 8},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"token": {"type": "integer"}}}},
    },
    "required": ["order"],
    "additionalProperties": False,
}


@pytest.fixture
def store(system: System) -> ScheduleStore:
    """The schedules, with a type to make them of."""
    TaskTypes(system.redis).publish([TaskType(name="pay", schema=SCHEMA, queue="low"), TaskType(name="any", schema={})])
    return ScheduleStore(system.scripts)


def _form(browser: Browser, path: str) -> dict[str, Any]:
    """The fields of a page's form, as a browser would send them."""
    return _fields(browser.text(path))


def _fields(page: str) -> dict[str, Any]:
    page = page[page.index('class="fields"') :]
    found = {
        unescape(tag[1]): unescape(value[1])
        for tag in re.finditer(r'<input[^>]*?name="([^"]+)"[^>]*>', page)
        if (value := re.search(r'value="([^"]*)"', tag[0]))
    }
    for tag in re.finditer(r'<textarea[^>]*name="([^"]+)"[^>]*>\n?([^<]*)</textarea>', page):
        found[unescape(tag[1])] = unescape(tag[2]).replace("\n", "\r\n")
    for tag in re.finditer(r'<select[^>]*name="([^"]+)".*?</select>', page, re.DOTALL):
        chosen = re.search(r'<option value="([^"]*)" selected', tag[0])
        found[unescape(tag[1])] = unescape(chosen[1]) if chosen else ""
    return {name: value for name, value in found.items() if name != "csrf"}


def _tasks(system: System) -> list[Any]:
    ids = [key.decode().rpartition(":")[2] for key in system.redis.scan_iter(keys.rq_job("*"))]
    return [system.records.get(each) for each in ids]


def test_a_task_is_submitted_with_a_form_of_its_type(browser: Browser, system: System, store: ScheduleStore) -> None:
    assert 'value="pay"' in browser.text("/tasks/new?type=pay")
    form = _form(browser, "/tasks/new?type=pay")
    form |= {"data/number/order": "3", "data/json/lines": '[{"token": 4}]', "option/words/tags": "a, b"}
    answer = browser.post("/tasks/submit", **form | {"option/json/options": '{"max_retries": 0}'})
    assert "The task is submitted" in answer.text
    [task] = _tasks(system)
    assert (task.data, task.summary.queue, task.summary.tags) == (
        {"order": 3, "lines": [{"token": 4}]},
        "low",
        ("a", "b"),
    )
    assert task.summary.submitted_by == "anonymous"
    assert task.retry == {"max_retries": 0}
    [entry], _ = Audit(system.redis).page(5)
    assert (entry.what, entry.about) == ("submitted", task.summary.id)


def test_a_form_that_is_sent_twice_makes_one_task(browser: Browser, system: System, store: ScheduleStore) -> None:
    form = _form(browser, "/tasks/new?type=pay") | {"data/number/order": "3"}
    token = browser.token()

    def send(_: int) -> str:
        client = browser.app.test_client()
        for cookie in (browser.client._cookies or {}).values():
            client.set_cookie(cookie.key, cookie.value)
        return str(client.post("/tasks/submit", data={"csrf": token, **form}).location)

    with ThreadPoolExecutor(4) as pool:
        places = set(pool.map(send, range(8)))
    [task] = _tasks(system)
    assert places == {f"/tasks/{task.summary.id}"}
    assert len(Audit(system.redis).page(50)[0]) == 1
    other = browser.post("/tasks/submit", **form | {"data/number/order": "4"})
    assert (other.status_code, len(_tasks(system))) == (409, 1)
    browser.post("/tasks/submit", **_fields(other.text))
    assert sorted(each.data["order"] for each in _tasks(system)) == [3, 4]


@pytest.mark.parametrize(
    ("given", "place", "told"),
    [
        ({"data/number/order": "x"}, "data/number/order", "not of type"),
        ({"data/number/order": ""}, "data/number/order", "is required"),
        ({"data/json/lines": "["}, "data/json/lines", "not JSON"),
        ({"data/json/lines": "{}"}, "data/json/lines", "not of type"),
        ({"option/number/delay": "soon"}, "option/number/delay", "must be a number"),
        ({"option/words/tags": "ok <b>"}, "option/words/tags", "must be 1 to 64 characters"),
        ({"option/text/queue": "a b"}, "option/text/queue", "must be 1 to 64 characters"),
        ({"option/json/options": '{"timeout": -1}'}, "option/json/options", "timeout"),
        ({"option/json/options": '{"what": 1}'}, "option/json/options", "is unknown"),
    ],
)
def test_a_mistake_stands_at_its_field(
    browser: Browser, system: System, store: ScheduleStore, given: dict[str, Any], place: str, told: str
) -> None:
    form = _form(browser, "/tasks/new?type=pay") | {"data/number/order": "3"} | given
    answer = browser.post("/tasks/submit", **form)
    assert answer.status_code == 400
    [wrong] = re.findall(
        r'id="(field-\d+)" name="([^"]+)" aria-describedby="[^"]*" aria-invalid="true" autofocus', answer.text
    )
    assert wrong[1] == place
    assert told in unescape(answer.text.partition(f'id="{wrong[0]}-wrong">')[2].partition("</p>")[0])
    assert _fields(answer.text)[place] == given[place]
    assert _tasks(system) == []


def test_a_type_that_nobody_offers_is_refused(browser: Browser, system: System, store: ScheduleStore) -> None:
    form: dict[str, Any] = {"type": "pya", "form_id": "a", "whole/json/": "{}"}
    answer = browser.post("/tasks/submit", **form)
    assert (answer.status_code, _tasks(system)) == (400, [])
    assert "is not a task type that a worker offers: use one of any, pay" in answer.text


def test_a_copy_keeps_hidden_values_without_showing_them(
    browser: Browser, system: System, store: ScheduleStore
) -> None:
    data = {"order": 1, "password": "s3cret", "lines": [{"token": 77001}]}
    first = system.submit("pay", json.dumps(data), "low", tags=("a", "schedule:nightly"))
    form = _form(browser, f"/tasks/new?from={first}")
    assert not {"s3cret", "77001"} & set(re.findall(r"\w+", str(form)))
    assert (form["option/words/tags"], form["option/text/queue"]) == ("a", "low")
    browser.post("/tasks/submit", **form | {"data/number/order": "2"})
    [copy] = [each for each in _tasks(system) if each.summary.id != first]
    assert copy.data == {**data, "order": 2}
    # What was copied is gone: the placeholders mean nothing any more.
    again = _form(browser, f"/tasks/new?from={first}")
    system.redis.delete(keys.rq_job(first))
    browser.forget()
    assert browser.post("/tasks/submit", **again).status_code == 404


@pytest.mark.parametrize("secret", ["far too long: s3cret", "s3cret"])
def test_a_hidden_value_is_quoted_neither_in_a_mistake_nor_in_the_form(
    browser: Browser, store: ScheduleStore, secret: str
) -> None:
    form = _form(browser, "/tasks/new?type=pay") | {"data/number/order": "0", "data/text/password": secret}
    answer = browser.post("/tasks/submit", **form | {"data/json/lines": '[{"token": "s3cret"}, 5]'})
    assert answer.status_code == 400
    assert "s3cret" not in answer.text
    assert "less than the minimum" in answer.text
    # They have to be entered again; the marks in their place are refused.
    again = browser.post("/tasks/submit", **_fields(answer.text) | {"data/number/order": "1"})
    assert (again.status_code, again.text.count("enter this value again")) == (400, 1)


def test_edited_data_of_a_dead_letter_is_not_quoted_either(
    browser: Browser, system: System, store: ScheduleStore
) -> None:
    [dead] = bury(system, ["no"], task_type="pay", data=json.dumps({"order": 1, "password": "s3cret, too long"}))
    shown = browser.text(f"/tasks/{dead}")
    data = unescape(re.search(r"<textarea[^>]*>\n?([^<]*)</textarea>", shown)[1])  # type: ignore[index]
    answer = browser.post(f"/tasks/{dead}/retry-with", data=data)
    assert answer.status_code == 400
    assert "s3cret" not in answer.text
    assert "data.password: is not valid" in answer.text


def test_data_that_is_too_large_for_a_form_is_not_copied(
    browser: Browser, system: System, store: ScheduleStore
) -> None:
    first = system.submit("any", json.dumps("x" * 20_000))
    answer = browser.get(f"/tasks/new?from={first}")
    assert (answer.status_code, "too large for a form" in answer.text) == (400, True)


# --- schedules ---


def _nightly(store: ScheduleStore, **changes: Any) -> Schedule:
    data = json.dumps({"order": 1, "password": "s3cret"})
    made = replace(Schedule(name="nightly", type="pay", data=data, queue="low", cron="0 3 * * *"), **changes)
    store.put(made, "file")
    return made


def test_a_schedule_is_created_with_a_preview_of_its_times(browser: Browser, store: ScheduleStore) -> None:
    form = _form(browser, "/schedules/+new?type=pay") | {"option/string/name": "hourly", "data/number/order": "3"}
    form |= {"option/text/cron": "30 4 * * *", "option/text/timezone": "Europe/Berlin"}
    preview = browser.post("/schedules/+create", **form | {"do": "preview"})
    assert (preview.status_code, preview.text.count('<time class="clock minute"')) == (200, 5)
    assert not store.page(5).items
    assert "Created." in browser.post("/schedules/+create", **_fields(preview.text)).text
    made = store.get("hourly").schedule
    assert (made.cron, made.timezone, made.queue, json.loads(made.data)) == (
        "30 4 * * *",
        "Europe/Berlin",
        "low",
        {"order": 3},
    )
    assert "Europe/Berlin" in browser.text("/schedules/hourly")


def test_the_times_of_an_open_form_are_answered(browser: Browser, store: ScheduleStore) -> None:
    page = browser.text("/schedules/+times?option/text/cron=0+0+1+1+*&option/number/interval=")
    assert page.count("<time") == 5
    assert f"{datetime.now(UTC).year + 1}-01-01" in page
    assert "must be a whole number" in browser.text("/schedules/+times?option/number/interval=1.5")
    assert "cron or interval" in browser.text("/schedules/+times")


@pytest.mark.parametrize(
    ("given", "place", "told"),
    [
        ({"option/number/interval": "x"}, "option/number/interval", "must be a whole number"),
        ({"option/number/interval": "0"}, "option/number/interval", "must be at least 1"),
        ({"option/text/cron": "now"}, "option/text/cron", "is no cron expression"),
        ({"option/text/cron": "99 * * * *"}, "option/text/cron", "cron expression"),
        (
            {"option/number/interval": "60", "option/text/cron": "* * * * *"},
            "option/text/cron",
            "either cron or interval",
        ),
        ({"option/text/cron": "* * * * *", "option/text/timezone": "Moon"}, "option/text/timezone", "not a time zone"),
        ({"option/number/interval": "60", "option/string/name": "a b"}, "option/string/name", "not a schedule name"),
        ({"option/number/interval": "60", "data/number/order": "0"}, "data/number/order", "less than the minimum"),
    ],
)
def test_a_mistake_of_a_schedule_stands_at_its_field(
    browser: Browser, store: ScheduleStore, given: dict[str, Any], place: str, told: str
) -> None:
    form = _form(browser, "/schedules/+new?type=pay") | {"option/string/name": "s", "data/number/order": "3"}
    answer = browser.post("/schedules/+create", **form | given)
    assert answer.status_code == 400
    wrong = re.findall(r'id="(field-\d+)" name="([^"]+)" aria-describedby="[^"]*" aria-invalid="true"', answer.text)
    assert [each[1] for each in wrong] == [place]
    assert told in unescape(answer.text.partition(f'id="{wrong[0][0]}-wrong">')[2].partition("</p>")[0])
    assert not store.page(5).items


def test_a_name_that_is_taken_is_not_created_again(browser: Browser, system: System, store: ScheduleStore) -> None:
    before = _nightly(store)
    form = _form(browser, "/schedules/+new?type=pay") | {"option/string/name": "nightly", "data/number/order": "3"}
    answer = browser.post("/schedules/+create", **form | {"option/number/interval": "60"})
    assert (answer.status_code, "of this name exists" in answer.text) == (409, True)
    assert store.get("nightly").schedule == before
    with pytest.raises(ScheduleChanged):
        store.put(replace(before, cron=None, interval=5), expected="")
    # A schedule whose record is corrupt has its name too.
    system.redis.delete(system.scripts.keys.schedule("nightly"))
    with pytest.raises(ScheduleChanged):
        store.put(before, expected="")


def test_a_form_that_creates_a_schedule_may_be_sent_twice(
    browser: Browser, system: System, store: ScheduleStore
) -> None:
    form = _form(browser, "/schedules/+new?type=pay") | {"option/string/name": "s", "data/number/order": "3"}
    form |= {"option/number/interval": "60"}
    answers = [browser.post("/schedules/+create", follow=False, **form) for _ in range(2)]
    assert [each.location for each in answers] == ["/schedules/s", "/schedules/s"]
    assert len(Audit(system.redis).page(50)[0]) == 1


def test_a_schedule_is_changed_with_its_hidden_values_kept(
    browser: Browser, system: System, store: ScheduleStore
) -> None:
    before = _nightly(store, retry={"max_retries": 2}, tags=("t",))
    form = _form(browser, "/schedules/nightly/edit")
    assert "s3cret" not in str(form)
    browser.post("/schedules/nightly/edit", **form)
    assert (store.get("nightly").schedule, Audit(system.redis).page(5)[0]) == (before, [])
    changed = form | {"option/text/cron": "", "option/number/interval": "60"}
    for _ in range(2):  # as by a double click
        assert browser.post("/schedules/nightly/edit", follow=False, **changed).status_code == 302
    browser.post("/schedules/nightly/edit", **_form(browser, "/schedules/nightly/edit") | {"data/number/order": "2"})
    stored = store.get("nightly")
    data = json.dumps({"order": 2, "password": "s3cret"})
    assert replace(stored.schedule, data="") == replace(before, cron=None, interval=60, data="")
    assert (json.loads(stored.schedule.data), stored.source) == (json.loads(data), "file")
    assert len(Audit(system.redis).page(5)[0]) == 2


@pytest.mark.parametrize("theirs", [{"cron": "0 4 * * *"}, {"data": '{"order": 1, "password": "0ther"}'}])
def test_a_schedule_that_another_changed_meanwhile_is_shown_beside_the_form(
    browser: Browser, store: ScheduleStore, theirs: dict[str, Any]
) -> None:
    _nightly(store)
    form = _form(browser, "/schedules/nightly/edit") | {"option/text/cron": "0 5 * * *"}
    other = _nightly(store, **theirs)
    answer = browser.post("/schedules/nightly/edit", **form)
    assert answer.status_code == 409
    assert store.get("nightly").schedule == other
    assert _fields(answer.text)["option/text/cron"] == "0 5 * * *"
    assert str(other.cron) in answer.text[answer.text.index('id="theirs"') :]
    assert not {"s3cret", "0ther"} & set(re.findall(r"\w+", answer.text))
    again = browser.post("/schedules/nightly/edit", **_fields(answer.text))
    assert again.status_code == 200
    stored = store.get("nightly").schedule
    assert (stored.cron, json.loads(stored.data)) == ("0 5 * * *", json.loads(other.data))


def test_of_two_changes_at_once_one_is_refused(
    browser: Browser, store: ScheduleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the digest of the form and the write, another change comes in: the script notices."""
    before = _nightly(store)
    form = _form(browser, "/schedules/nightly/edit") | {"option/text/cron": "0 5 * * *"}
    stores = browser.app.extensions["page_context"].stores
    put: Callable[..., str] = ScheduleStore.put

    def late(self: ScheduleStore, *arguments: Any) -> str:
        monkeypatch.undo()
        _nightly(store, cron="0 4 * * *")
        return put(stores.schedules, *arguments)

    monkeypatch.setattr(ScheduleStore, "put", late)
    assert browser.post("/schedules/nightly/edit", **form).status_code == 409
    assert store.get("nightly").schedule == replace(before, cron="0 4 * * *")


def test_a_schedule_of_a_type_without_worker_can_be_changed(
    browser: Browser, system: System, store: ScheduleStore
) -> None:
    store.put(Schedule(name="old", type="gone", data='{"a": [1]}', queue="low", interval=60))
    form = _form(browser, "/schedules/old/edit")
    browser.post("/schedules/old/edit", **form | {"option/number/interval": "90"})
    assert (store.get("old").schedule.interval, store.get("old").schedule.data) == (90, '{"a": [1]}')
    assert system.records.counts()[TaskState.PENDING] == 0
