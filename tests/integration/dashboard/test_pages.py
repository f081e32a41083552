"""What the pages show, and that nothing from outside is ever more than text."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from rq import Queue as RQQueue

from firmq.shared.config.settings import Settings
from firmq.shared.domain.redaction import HIDDEN, Redaction
from firmq.shared.stores import maintenance
from firmq.shared.stores.locks import lock_acquire
from firmq.shared.stores.task_types import TaskType, TaskTypes
from firmq.shared.stores.workers import BlockingType, QueueExecutors, RunningTask, WorkerInfo
from tests.integration.dashboard.conftest import Browser, bury
from tests.support.attempt_ends import claiming
from tests.support.features import rows
from tests.support.harness import System
from tests.support.keys import keys

PAGES = (
    "/", "/tasks", "/batches", "/dead-letters", "/queues", "/limits", "/workers", "/schedules", "/locks", "/audit",
    *rows("PAGES"),
)  # fmt: skip


@pytest.mark.parametrize("path", PAGES)
def test_every_page_says_what_to_do_when_there_is_nothing(browser: Browser, path: str) -> None:
    page = browser.text(path)
    assert "<script>" not in page
    assert " style=" not in page
    assert not re.search(r"\son\w+=", page)


def test_the_overview_counts_every_state(browser: Browser, system: System) -> None:
    bury(system, ["a", "b"])
    system.submit("noop")
    system.submit("noop", delay=timedelta(hours=1))
    page = browser.text("/")
    for state, count in {"pending": 1, "scheduled": 1, "failed": 2, "running": 0}.items():
        assert f'id="count-{state}">{count}<' in page
    assert "No worker is alive" in page
    assert "failed permanently in the last 10 minutes" in page


def test_a_paused_queue_is_told_with_its_reason(browser: Browser, system: System) -> None:
    system.queues.pause("high", "bank is closed", "eve")
    assert "Queue high is paused" in browser.text("/")
    page = browser.text("/queues")
    assert "bank is closed" in page
    assert "by eve" in page


def test_jobs_of_rq_programs_are_told_with_what_to_do(browser: Browser, system: System) -> None:
    RQQueue("high", connection=system.redis).enqueue("operator.add", 2, 3)
    maintenance.recover(system.scripts, "high", 0, 200)
    page = browser.text("/queues")
    assert "Foreign RQ jobs" in page
    assert "firmq queues move-foreign high --to QUEUE" in page


def test_a_key_that_was_set_aside_is_told_on_the_overview_and_named_where_it_leads(
    browser: Browser, system: System
) -> None:
    system.redis.rpush(keys.FAIR, "not what belongs here")
    system.scripts.quarantine()
    assert "1 key in Redis held a value of the wrong type" in browser.text("/")
    assert keys.quarantined(keys.FAIR) in browser.text("/audit")


def test_tasks_are_found_by_all_that_the_form_offers(browser: Browser, system: System) -> None:
    wanted = system.submit("echo", "1", "high", tags=("eu",))
    other = system.submit("noop")
    for query in ("type=echo", "queue=high&status=pending", "tag=eu", "type=echo&since=2020-01-01T00:00:00Z"):
        page = browser.text(f"/tasks?{query}")
        assert wanted[-8:] in page, query
        assert other[-8:] not in page, query
    assert browser.get(f"/tasks?id={wanted}").headers["Location"].endswith(f"/tasks/{wanted}")


def test_the_next_page_begins_where_the_last_one_ended(browser: Browser, system: System) -> None:
    ids = set(system.submit_many([("noop", "null")] * 120))
    seen: set[str] = set()
    path = "/tasks"
    for _ in range(3):
        page = browser.text(path)
        seen |= set(re.findall(r'id="row-(\w+)"', page))
        older = re.search(r'href="(/tasks\?cursor=[^"]+)"', page)
        path = older[1] if older else ""
    assert seen == ids
    assert path == ""


@pytest.mark.parametrize(
    "path",
    [
        "/tasks?cursor=zzz",
        "/tasks?status=lost",
        "/tasks?since=yesterday",
        "/audit?before=x",
        "/audit?before=%D9%A3-%D9%A3",
        f"/audit?before={'9' * 20}-0",
        f"/dead-letters?page={'9' * 20}",
    ],
)
def test_an_address_that_cannot_be_is_told_so(browser: Browser, path: str) -> None:
    assert browser.get(path).status_code == 400


@pytest.mark.parametrize(
    "path", ["/dead-letters?page=1000000", "/dead-letters?page=-1", "/dead-letters?page=x", "/audit?before=9-0"]
)
def test_an_address_of_a_page_that_nothing_is_on_is_a_page(browser: Browser, path: str) -> None:
    assert browser.get(path).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/tasks/nope",
        "/nowhere",
        *rows("MISSING_PAGES"),
        "/tasks/a%00b",
        "/tasks/" + "x" * 5000,
        "/batches/nope?after=" + "9" * 400,
    ],
)
def test_what_is_not_there_is_a_page_too(browser: Browser, path: str) -> None:
    answer = browser.get(path)
    assert answer.status_code == 404
    assert "</html>" in answer.text


def test_a_task_shows_its_history(browser: Browser, system: System) -> None:
    [dead] = bury(system, ["order 7 is unknown"], tags=("eu",))
    page = browser.text(f"/tasks/{dead}")
    for text in ("It failed permanently with ValueError", "order 7 is unknown", "Attempt 1", "Traceback", "shop.pay"):
        assert text in page
    assert "other tasks with this error" in page


def test_a_trace_is_linked_if_an_address_is_set(open_browser: Callable[..., Browser], system: System) -> None:
    meta = {"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"}
    task = system.submit("noop", meta=meta)
    browser = open_browser(dashboard_trace_url="http://jaeger:16686/trace/{trace_id}")
    assert f'href="http://jaeger:16686/trace/{"ab" * 16}"' in browser.text(f"/tasks/{task}")
    odd = system.submit("noop", meta={"traceparent": "00-javascript:x-1-1"})
    assert "javascript:x" not in browser.text(f"/tasks/{odd}").replace("&#34;", "")


def test_hidden_fields_are_never_shown(browser: Browser, system: System) -> None:
    data = {"user": "eve", "password": "hunter2", "deep": [{"API_KEY": "hunter3"}], "card_number": "4111"}
    [dead] = bury(system, ["no"], data=json.dumps(data))
    for path in (f"/tasks/{dead}", f"/tasks/{dead}/data.json"):
        page = browser.text(path)
        assert "eve" in page
        for secret in ("hunter2", "hunter3", "4111"):
            assert secret not in page


def test_copies_of_hidden_fields_are_not_shown(browser: Browser, system: System) -> None:
    """In the result that a delivery of a webhook carries, in a JSON text, and in output."""
    copied = json.dumps({"user": "eve", "password": "hunter2"})
    encoded = base64.b64encode(copied.encode()).decode()
    data = {"user": "eve", "body": copied, "result_base64": encoded, "body_of_list": json.dumps([json.loads(copied)])}
    task = system.submit("firmq.webhook", json.dumps(data))
    [dead] = bury(system, ["no"], data=json.dumps(data))
    for each in (task, dead):
        system.redis.xadd(keys.output(each), {"attempt": 1, "chunk": json.dumps(copied)})
    paths = [f"/tasks/{each}{page}" for each in (task, dead) for page in ("", "/data.json")]
    paths += ["/", "/tasks", *rows("VALUES"), *rows("PAGES")]
    for path in paths:
        page = browser.text(path)
        assert "hunter2" not in page, path
        assert encoded[:20] not in page, path
    for path in (f"/tasks/{task}", "/tasks", *rows("PAGES_OF_DATA")):
        assert "eve" in browser.text(path), path
    assert {browser.get(path).status_code for path in rows("PAGES_OF_HIDDEN_FIELDS")} <= {400}


def test_a_json_text_with_hidden_fields_is_restored_after_editing() -> None:
    hidden = Redaction(["password"])
    data = {"body": '{"password": 1,  "n": 2}', "text": "[1] password", "deep": ["[" * 10_000], "password": "x"}
    seen = hidden.hide(data)
    assert json.loads(seen["body"]) == {"password": HIDDEN, "n": 2}
    assert (seen["text"], seen["deep"]) == (data["text"], data["deep"])
    assert hidden.restore({**seen, "text": "changed"}, data) == {**data, "text": "changed"}
    with pytest.raises(ValueError, match="not a current placeholder"):
        hidden.restore({"body": seen["body"].replace("2", "3")}, data)


@pytest.mark.parametrize("name", ["Authorization", "Proxy-Authorization", "X-Api-Key", "Cookie", "X-Auth-Token"])
def test_headers_with_credentials_are_hidden_by_default(name: str) -> None:
    assert "hunter2" not in str(Redaction(Settings().dashboard_redact).hide({"headers": {name: "hunter2"}}))


def test_fields_are_hidden_by_where_they_stand_too() -> None:
    hidden = Redaction(["iban", "customer.name", "*.cards.number"])
    data = {"name": "x", "customer": {"name": "ann", "iban": 1, "cards": [{"number": 2, "year": 3}, {"number": None}]}}
    seen = hidden.hide(data)
    assert (seen["name"], seen["customer"]["cards"][1]) == ("x", {"number": None})
    customer = seen["customer"]
    placeholders = [customer["name"], customer["iban"], customer["cards"][0]["number"]]
    assert all(each.startswith(f"{HIDDEN}#{number}-") for number, each in enumerate(placeholders, 1))
    assert hidden.restore(seen, data) == data
    assert Redaction([]).hide(data) == data


def _why(page: str) -> str:
    found = re.search(r'id="why">([^<]+)<', page)
    assert found
    return found[1]


def test_why_a_task_is_not_running_is_one_sentence(browser: Browser, system: System) -> None:
    first, second = system.submit("noop"), system.submit("noop")
    later = system.submit("noop", delay=timedelta(hours=1))
    assert "No worker is alive" in _why(browser.text(f"/tasks/{first}"))
    system.workers.announce(_worker("w1"))
    TaskTypes(system.redis).publish([TaskType(name="noop", schema={})])
    other = Browser(browser.app, browser.app.test_client())
    system.queues.pause("normal", "lunch")
    browser.post("/queues/high/resume")
    assert "paused (lunch)" in _why(other.text(f"/tasks/{first}"))
    browser.post("/queues/normal/resume")
    assert "It is next" in _why(other.text(f"/tasks/{first}"))
    assert "1 task is before it in normal" in _why(other.text(f"/tasks/{second}"))
    other.post("/limits/set", kind="type", name="noop", concurrency="0")
    system.scripts.call("claim", *claiming("w", "t", 1_000_000, 1, 1 << 20, "normal", 1))
    assert "throttled by the limit type:noop" in _why(other.text(f"/tasks/{first}"))
    assert "it is due in " in _why(other.text(f"/tasks/{later}"))


def test_a_queue_that_has_all_executors_it_may_have_is_shown_and_said(browser: Browser, system: System) -> None:
    task = system.submit("noop")
    TaskTypes(system.redis).publish([TaskType(name="noop", schema={})])
    about = replace(_worker("w1"), executors=2)
    system.workers.announce(replace(about, queue_executors=(QueueExecutors(queue="normal", in_use=1, limit=1),)))
    assert "Executors for normal 1 of 1 in use" in _plain_text(browser.text("/workers"))
    assert "all executors that QUEUE_EXECUTORS allows for it are busy" in _why(browser.text(f"/tasks/{task}"))
    other = Browser(browser.app, browser.app.test_client())
    system.workers.announce(replace(about, queue_executors=(QueueExecutors(queue="normal", in_use=1, limit=2),)))
    browser.post("/queues/high/resume")  # which forgets what was seen
    assert "QUEUE_EXECUTORS" not in _why(other.text(f"/tasks/{task}"))


def _with(browser: Browser, system: System, **slots: Any) -> str:
    system.workers.announce(replace(_worker("w1"), **slots))
    browser.forget()
    return browser.text("/workers")


def test_a_type_that_blocked_an_event_loop_is_shown_with_its_place(browser: Browser, system: System) -> None:
    blocking = (BlockingType(type="scrape", where="shop.py:7 in fetch"),)
    system.workers.announce(replace(_worker("w1"), blocking_types=blocking, app_version="a1b2c3d"))
    page = _plain_text(browser.text("/workers"))
    assert "Blocked the event loop scrape at shop.py:7 in fetch" in page
    slots = {"slots": 102, "active": 7, "serial_slots": 2, "serial_active": 1}
    assert "Running 1 of 2 processes, 6 of 100 threads" in _plain_text(_with(browser, system, **slots))
    assert "Running 6 of 100 threads" in _plain_text(_with(browser, system, slots=100, active=6))
    assert "Running 1 of 2 processes Completed" in _plain_text(
        _with(browser, system, slots=2, active=1, serial_slots=2, serial_active=1)
    )
    assert "Version a1b2c3d" in page


def _plain_text(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def _worker(name: str) -> WorkerInfo:
    from datetime import UTC, datetime

    return WorkerInfo(
        name=name,
        host=name,
        pid=1,
        version="1",
        queues=("normal",),
        executors=1,
        started_at=datetime.now(UTC),
        running=(RunningTask(id="x", type=name, seconds=1.0),),
    )


HOSTILE = [
    "<script>alert(1)</script>",
    "'\"><img src=x onerror=alert(1)>",
    "</code></pre><script>alert(1)</script>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    "\u202egnp.exe",
    "a\x00b\x1b[31m",
    "\ufeff\u2028\u2029",
    "<svg/onload=alert(1)>",
    "&lt;script&gt;",
    "' hx-get='/x' hx-trigger='load",
    "x" * 100_000,
]


def _assert_only_text(page: str) -> None:
    page = page.replace('<svg class="', "")  # those that we draw
    for live in ("<script>", "<img src=x", "<svg", "hx-get='/x'", "\x1b", "\u202e", "\x00", "\u2028"):
        assert live not in page, live
    assert not re.search(r'(?:href|src)="javascript:', page)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_outside_text_is_escaped(browser: Browser, system: System, text: str) -> None:
    [dead] = bury(
        system, [text], error=text[:90], place=text[:90], data=json.dumps({text: [text, None]}), tags=(text[:200],)
    )
    system.queues.pause("high", text[:500], text[:100])
    system.workers.announce(_worker(text[:80]))
    system.redis.hset(keys.rq_job(dead), "cancel", text)
    browser.post("/queues/low/pause", reason=text)
    group = re.search(r"/dead-letters/(\w+)", browser.text("/dead-letters"))
    assert group
    for path in (*PAGES, f"/tasks/{dead}", f"/dead-letters/{group[1]}", f"/tasks?type={'%3Cscript%3E'}"):
        page = browser.text(path)
        assert len(page) < 500_000
        _assert_only_text(page)
    if "{{" in text:
        assert "{{ 7 * 7 }}" in browser.text(f"/tasks/{dead}")


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_holders_of_locks_and_reasons_to_take_them_away_are_text(browser: Browser, system: System, text: str) -> None:
    minute = timedelta(minutes=1)
    _, token = lock_acquire(system.scripts, "ttl", "nonce", text[:200], minute, timedelta(0))
    lock_acquire(system.scripts, "metrics", "nonce", text[:200], minute, timedelta(0))
    pages = browser.text("/locks") + browser.text("/")
    assert browser.post("/locks/ttl/unlock", token=token, reason=f"because {text}").status_code == 200
    pages += browser.text("/audit")
    assert "because" in pages
    _assert_only_text(pages)


def test_a_type_with_markup_in_its_name_is_text(browser: Browser, system: System) -> None:
    [dead] = bury(system, ["no"], task_type="<b>bold</b>")
    for path in ("/", "/tasks", "/dead-letters", f"/tasks/{dead}"):
        assert "<b>bold" not in browser.text(path)


def _no_hash(system: System, task: str) -> None:
    system.redis.set(keys.rq_job(task), "not a hash")


def _no_state(system: System, task: str) -> None:
    system.redis.hset(keys.rq_job(task), "state", "dreaming")


@pytest.mark.parametrize("damage", [_no_hash, _no_state])
def test_a_broken_record_is_shown_and_can_be_deleted(
    browser: Browser, system: System, damage: Callable[[System, str], None]
) -> None:
    [dead, whole] = bury(system, ["one", "two"])
    damage(system, dead)
    assert "broken" in browser.text("/tasks")
    page = browser.text(f"/tasks/{dead}")
    assert "cannot" in page or "does not hold" in page
    assert f'action="/tasks/{dead}/delete"' in page
    browser.text("/dead-letters")
    assert browser.post(f"/tasks/{dead}/delete").status_code == 200
    assert system.redis.exists(keys.rq_job(dead)) == 0
    assert dead[-8:] not in browser.text("/tasks")
    assert browser.get(f"/tasks/{whole}").status_code == 200


@pytest.mark.parametrize(
    ("name", "value"),
    [("attempt:1", "{"), ("attempt:1", '{"outcome": "odd"}'), ("error", "[]"), ("tags", "7"), ("data", "x"),
     ("retry", "["), ("progress", '{"x": 1}'), ("attempt", "one"), ("created_at", "never")],
)  # fmt: skip
def test_a_corrupt_field_breaks_no_page(browser: Browser, system: System, name: str, value: str) -> None:
    [dead] = bury(system, ["one"])
    system.redis.hset(keys.rq_job(dead), name, value)
    for path in ("/", "/tasks", "/dead-letters", f"/tasks/{dead}"):
        browser.text(path)


def test_when_redis_is_away_the_page_says_so(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    from redis.exceptions import ConnectionError

    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError("refused")

    browser.text("/")
    monkeypatch.setattr("redis.connection.AbstractConnection.connect", refuse)
    browser.app.extensions["page_context"].stores.redis.connection_pool.disconnect()
    browser.forget()
    answer = browser.get("/")
    assert answer.status_code == 503
    assert "Redis cannot be reached" in answer.text
    assert answer.headers["Refresh"] == "5"
    assert browser.get("/health/live").status_code == 200
    assert browser.get("/health/ready").status_code == 503


def test_the_navigation_has_six_sections_with_their_pages(browser: Browser) -> None:
    page = browser.text("/limits")
    sections, pages = (
        re.findall(r'<a href="([^"]+)"( aria-current)?', each)
        for each in re.findall(r"<nav[^>]*pages.*?</nav>", page, re.DOTALL)
    )
    assert [path for path, _ in sections] == ["/", "/tasks", "/types", "/dead-letters", "/workers", "/audit"]
    assert [path for path, here in sections if here] == ["/workers"]
    assert [path for path, here in pages if here] == ["/limits"]
    every = {path for path, _ in sections}
    for path in sorted(every):
        every |= set(re.findall(r'<a href="(/[a-z-]*)"', browser.text(path)))
    assert {"/analytics", "/batches", "/schedules", "/queues", "/locks", *rows("PAGES")} <= every
