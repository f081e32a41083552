"""The pages of task types: what each type does, and pausing one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from firmq.gateway.app import create_app
from firmq.shared.config.settings import Settings
from firmq.shared.domain.clock import instant
from firmq.shared.domain.limit import Limit
from firmq.shared.domain.task import TaskState
from firmq.shared.features.history.database import Database
from firmq.shared.features.history.feeding import Feeder
from firmq.shared.features.history.unarchived import Unarchived
from firmq.shared.stores.audit import Audit
from firmq.shared.stores.limits import Limits
from firmq.shared.stores.pauses import of_type
from tests.integration.dashboard.conftest import Browser, bury
from tests.support.harness import System, wait_until

SIXTY_KB = 60_000


@pytest.fixture
def http(system: System) -> FlaskClient:
    return create_app(Settings(), system.redis).test_client()


def _start(system: System, **settings: str) -> None:
    system.start_worker(WORKER_EXECUTORS="2", MAX_RETRIES="0", APP_VERSION="1.42", **settings)


def test_a_type_is_shown_with_its_workers_limit_and_failures(system: System, browser: Browser) -> None:
    _start(system)
    done = system.submit("slowly", '{"seconds": 0.01}')
    dead = system.submit("fail", '{"message": "no luck"}')
    for each in (done, dead):
        system.ended(each)
    Limits(system.scripts).put("type:slowly", Limit(concurrency=3))
    assert '<a href="/types/slowly">' in browser.text("/types")
    page = browser.text("/types/slowly")
    assert "concurrency 3" in page
    assert "1.42" in page
    assert "Of its last 1 tasks" in page
    assert f'href="/tasks/{done}"' in page, "it is the slowest"
    assert "&#34;seconds&#34;" in page, "the schema"
    failing = browser.text("/types/fail")
    assert f'id="row-{dead}"' in failing
    assert "Dead letters by cause" in failing
    assert "1 (100.0 %)" in failing


def test_with_a_history_a_type_has_rates_and_causes(
    system: System, open_browser: Callable[..., Browser], tmp_path: Path
) -> None:
    unarchived = Unarchived(system.scripts)
    unarchived.take(1)
    bury(system, ["no"], task_type="slowly", data='{"seconds": 1}')
    _start(system)
    done = system.submit("slowly", '{"seconds": 0.2}')
    system.ended(done)
    feeder = Feeder(Database(f"sqlite:///{tmp_path}/history.db", 10))
    feeder.store(unarchived.take(10))
    browser = open_browser(history_url=f"sqlite:///{tmp_path}/history.db")
    page = browser.text("/types/slowly?range=1h")
    assert "Ended tasks" in page
    assert "Causes of failure" in page
    assert f'href="/tasks/{done}"' in page, "it is the slowest"
    assert "50.0 %" in browser.text("/types")
    assert len(page) < SIXTY_KB
    moved = browser.get("/analytics?type=slowly&range=1h")
    assert moved.location == "/types/slowly?range=1h"
    assert "range=7d" in page
    feeder.database.engine.dispose()


def test_the_page_of_a_busy_type_stays_small(
    system: System, open_browser: Callable[..., Browser], tmp_path: Path
) -> None:
    database = Database(f"sqlite:///{tmp_path}/history.db", 10)
    feeder = Feeder(database)
    feeder.store([])
    unarchived = Unarchived(system.scripts)
    unarchived.take(1)
    bury(system, [f"cause {chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(60)], task_type="charge-card")
    ends = unarchived.take(100)
    now = system.scripts.now_us()
    feeder.store(ends)
    for end, state in zip(ends, (b"failed", b"completed", b"cancelled"), strict=False):
        end.fields["state"] = state
    for step, steps in ((60, 60), (900, 96), (8 * 3600, 90), (7 * 86400, 52)):
        for back in range(1, steps):
            for end in ends[:3]:
                end.fields["ended_at"] = f"{instant(now - back * step * 1_000_000):%Y-%m-%dT%H:%M:%S.%fZ}".encode()
            feeder.store(ends[:3])
    browser = open_browser(history_url=f"sqlite:///{tmp_path}/history.db")
    for name in ("1h", "6h", "24h", "7d", "30d", "1y"):
        assert len(browser.text(f"/types/charge-card?range={name}").encode()) < SIXTY_KB, name
    database.engine.dispose()


def test_a_type_is_paused_with_a_reason_and_an_end(system: System, browser: Browser, http: FlaskClient) -> None:
    _start(system)
    wait_until(lambda: "noop" in browser.text("/types"), "the type is known")
    until = instant(system.scripts.now_us()) + timedelta(hours=2)
    page = browser.post("/types/noop/pause", reason="the bank is down", until=f"{until:%Y-%m-%dT%H:%M}").text
    assert "the bank is down" in page
    assert f"until {until:%Y-%m-%d %H:%M} UTC" in page
    task = system.submit("noop")
    other = system.submit("echo", '{"data": 1}')
    system.ended(other)
    assert system.records.state(task) is TaskState.PENDING
    browser.forget()
    assert "Its type is paused (the bank is down), and resumes in 1 h" in browser.text(f"/tasks/{task}")
    overview = browser.text("/")
    assert "type noop is paused" in overview
    assert "Resume noop" in overview
    [reason] = (http.get("/waiting").json or {})["reasons"]
    assert (reason["reason"], reason["name"], reason["count"]) == ("type_paused", "noop", 1)
    browser.post("/types/noop/resume")
    system.ended(task)
    entries, _ = Audit(system.redis).page(10)
    assert [(each.what, each.about) for each in entries] == [("resumed type", "noop"), ("paused type", "noop")]


def test_a_housekeeper_ends_a_pause(system: System) -> None:
    _start(system)
    pauses = system.queues.pauses
    pauses.pause(of_type("noop"), "a moment", until=instant(system.scripts.now_us() + 300_000))
    task = system.submit("noop")
    system.start_housekeeper()
    system.ended(task)
    assert pauses.types() == {}

    def recorded() -> bool:
        entries, _ = Audit(system.redis).page(10)
        return [(each.who, each.what, each.about) for each in entries] == [("housekeeper", "resumed type", "noop")]

    wait_until(recorded, "the end of the pause is in the audit record")


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/types/nothing/pause", {"reason": "x"}),
        ("/types/nothing/resume", {}),
        ("/types/noop/pause", {"reason": "x", "until": "soon"}),
        ("/types/noop/pause", {"reason": "x", "until": "2020-01-01T00:00"}),
    ],
)
def test_a_pause_that_cannot_be_is_refused(system: System, browser: Browser, path: str, form: dict[str, Any]) -> None:
    _start(system)
    wait_until(lambda: '"/types/noop"' in browser.text("/types"), "the type is known")
    assert browser.post(path, **form).status_code == 400
    assert system.queues.pauses.types() == {}


def test_an_unknown_type_has_a_page(browser: Browser) -> None:
    page = browser.text("/types/unheard-of")
    assert "No worker has registered this type." in page
    assert "Pause…" not in page
