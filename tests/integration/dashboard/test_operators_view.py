"""What an operator reads at a glance: tiles, waits for people, alerts by cause, buttons, and where a task ran."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from firmq.dashboard.explain.status import explain
from firmq.shared.domain.step import SIGNAL, StepKind, encode_step
from firmq.shared.domain.task import (
    SUSPENDED,
    Attempt,
    ErrorInfo,
    On,
    Outcome,
    Parent,
    TaskDetail,
    TaskState,
    TaskSummary,
)
from firmq.shared.stores.audit import Audit
from firmq.shared.stores.steps import RedisSteps
from tests.integration.dashboard.conftest import Browser, bury
from tests.integration.dashboard.test_access import HASH
from tests.support.attempt_ends import claiming, ended, report
from tests.support.harness import System
from tests.support.keys import keys

ABOUT = '{"outcome":"interrupted","error":{"type":"TaskSuspended","message":"waits"}}'
HOUR = 3_600_000_000
"""Microseconds."""


def suspend(system: System, awaits: str) -> str:
    """A task whose handler has suspended it."""
    task = system.submit("noop")
    claimed = system.scripts.call("claim", *claiming("w", task, 60_000_000, 1, 1 << 20, "normal", 1))[3]
    assert [each[0].decode() for each in claimed] == [task]
    until, (kind, name) = system.scripts.now_us() + HOUR, awaits.split()
    step = encode_step(StepKind.WAIT if kind == "signal" else StepKind.SLEEP, b"null", attempt=1, started_us=1)
    saved = RedisSteps(system.scripts, task, task, most=10, most_bytes=1000)
    saved.save(f"{SIGNAL}{name}" if kind == "signal" else name, step)
    assert report(system.scripts, ended(task, task, "suspended", ABOUT, due_us=until, awaits=awaits)) == [1]
    return task


def tiles(browser: Browser) -> dict[str, str]:
    browser.forget()
    return dict(re.findall(r'id="count-(\w+)">([\d,]+)<', browser.text("/")))


def test_tiles_count_blocked_tasks_and_those_that_wait_for_a_signal(browser: Browser, system: System) -> None:
    suspend(system, "signal approval")
    suspend(system, "sleep pause")
    parent = system.submit("noop")
    for _ in range(3):
        system.submit("noop", parents=(Parent(task_id=parent, on=On.SUCCESS),))
    found = tiles(browser)
    assert (found["pending"], found["blocked"], found["scheduled"], found["waiting"]) == ("1", "3", "2", "1")
    assert re.search(r'href="/tasks\?status=blocked">\s*<span class="figure" id="count-blocked">', browser.text("/"))


def test_a_task_that_waits_for_a_person_is_named_so_and_found(browser: Browser, system: System) -> None:
    waits, sleeps = suspend(system, "signal approval"), suspend(system, "sleep pause")
    for query in ("status=waiting", "search=signal:approval", "search=signal:*", "status=scheduled"):
        page = browser.text(f"/tasks?{query}")
        assert 'class="state s-waiting">waiting for approval</span>' in page, query
        assert (f'id="row-{sleeps}"' in page) == (query == "status=scheduled")
    assert waits not in browser.text("/tasks?search=signal:legal")
    assert "waiting for approval</span>" in browser.text(f"/tasks/{waits}")
    assert browser.get("/tasks?search=signal:a/b").status_code == 400


def detail(*outcomes: str, attempt: int = 0, **summary: Any) -> TaskDetail:
    attempts = tuple(
        Attempt(
            number=number,
            worker=None,
            enqueued_at=None,
            started_at=None,
            outcome=Outcome.INTERRUPTED if each == "waited" else Outcome(each),
            error=ErrorInfo(type=SUSPENDED, message="waits") if each == "waited" else None,
        )
        for number, each in enumerate(outcomes, start=1)
    )
    about = {"id": "a", "type": "noop", "queue": "normal", "failures": 0, "crashes": 0, "created_at": None, **summary}
    return TaskDetail(summary=TaskSummary(attempt=attempt or len(attempts), **about), data=None, attempts=attempts)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (detail("completed", state=TaskState.COMPLETED), "It completed on the first attempt."),
        (detail("failed", "completed", state=TaskState.COMPLETED), "It completed after 2 attempts."),
        (detail("waited", "completed", state=TaskState.COMPLETED), "It completed; it waited once."),
        (detail("waited", "waited", "completed", state=TaskState.COMPLETED), "It completed; it waited twice."),
        (
            detail("waited", "failed", "completed", state=TaskState.COMPLETED),
            "It completed after 2 attempts; it waited once.",
        ),
        (
            detail(*["waited"] * 49, "completed", attempt=400, state=TaskState.COMPLETED),
            "It completed; it waited 399 times.",
        ),
        (
            detail("waited", "failed", "failed", state=TaskState.FAILED),
            "It failed permanently after 2 attempts; it waited once: retry or delete it.",
        ),
    ],
)
def test_an_attempt_that_ended_to_wait_is_no_attempt_in_words(browser: Browser, task: TaskDetail, words: str) -> None:
    with browser.app.app_context():
        now = browser.app.extensions["page_context"].queries.snapshot()
    assert explain(task, None, now) == words


def test_at_most_three_alerts_are_open_and_those_of_one_cause_are_one(browser: Browser, system: System) -> None:
    for at in range(7):
        bury(system, ["no"], error=f"Error{at}")
    for queue in ("low", "high"):
        system.queues.pause(queue, "lunch", "Ann")
    for key in (keys.SCHEDULES_MISSED, keys.LOST_LOCKS):
        system.redis.zadd(key, {"nightly": system.scripts.now_us()})
    page = browser.text("/")
    shown, _, rest = page.partition('<details id="more-alerts">')
    assert shown.count('<div class="alert ') == 3
    assert "6 more like this" in page
    more = rest.partition("</section>")[0]
    count = re.search(r"<summary>(\d+) more</summary>", more)
    assert count
    assert more.count('<div class="alert ') == int(count[1])


def test_what_is_paused_is_resumed_with_a_button_by_those_who_may(
    browser: Browser, system: System, open_browser: Callable[..., Browser]
) -> None:
    system.queues.pause("low", "lunch", "Ann")
    system.submit("noop", queue="low")
    page = browser.text("/")
    assert page.count(">Resume low</button>") == 2  # in the alert, and where the reasons of the waits are
    assert "firmq queues resume" not in page
    viewer = open_browser(dashboard_users=f"vera:viewer:{HASH}")
    viewer.post("/sign-in", name="vera", password="correct horse")
    seen = viewer.text("/")
    assert "Resume low" not in seen
    assert "resume it: firmq queues resume low (<a" in seen
    browser.post("/queues/low/resume")
    assert "Resume low" not in browser.text("/")


@pytest.mark.parametrize("attempts", [0, 1])
def test_a_pending_task_does_not_show_the_worker_that_refused_it(
    browser: Browser, system: System, attempts: int
) -> None:
    task = system.submit("noop")
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    system.redis.hset(keys.rq_job(task), mapping={"worker_name": "refuser", "started_at": stamp, "attempt": attempts})
    assert "refuser" not in browser.text("/tasks")
    assert system.records.get(task).summary.started_at is None


def test_the_audit_record_links_tasks_and_batches_by_short_ids(browser: Browser, system: System) -> None:
    task = system.submit("noop")
    audit = Audit(system.redis)
    for what in ("signalled", "sent signal approval to", "redelivered", "retried"):
        audit.record("Ann", what, task)
    audit.record("Ann", "deleted", task)
    page = browser.text("/audit")
    assert page.count(f'href="/tasks/{task}"') == 4
    assert f">{task}<" not in page


def test_a_page_without_redis_says_when_it_tries_again(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    from redis.exceptions import ConnectionError

    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError("refused")

    token = browser.token()
    monkeypatch.setattr("redis.connection.AbstractConnection.connect", refuse)
    browser.app.extensions["page_context"].stores.redis.connection_pool.disconnect()
    browser.forget()
    assert "tries again in <span data-countdown>5</span> s" in browser.get("/").text
    posted = browser.client.post("/queues/low/resume", data={"csrf": token})
    assert (posted.status_code, "data-countdown" in posted.text) == (503, False)  # a form is not sent again by itself


def test_a_form_that_is_too_large_is_refused_with_the_number(browser: Browser) -> None:
    answer = browser.client.post("/tasks/submit", data="x" * 2_000_000)
    assert answer.status_code == 413
    assert "1,114,112 bytes (MAX_BODY_BYTES)" in answer.text
