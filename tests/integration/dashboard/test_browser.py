"""What a person does, done in a real browser in front of the real parts. Without chromium it is skipped at a desk."""

from __future__ import annotations

import json
import os
import re
import shutil
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import httpx
import pytest
from werkzeug.security import generate_password_hash

from taskqueue.shared.domain.lock import FencingToken
from taskqueue.shared.domain.task import TaskState
from taskqueue.shared.errors import StepRefused
from taskqueue.shared.http.bind import free_port
from taskqueue.shared.stores import maintenance
from taskqueue.shared.stores.bulk_actions import BulkActions, Selection, Verb
from taskqueue.shared.stores.locks import lock_acquire
from tests.integration.dashboard.conftest import bury
from tests.support.harness import System, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

AXE = Path(__file__).parent / "axe" / "axe-4.14.1.min.js"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
)


def _missing(what: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is missing: in CI these tests must run")
    pytest.skip(f"{what} is missing")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser without a window."""
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("playwright")
    if not binary:
        _missing("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=binary, args=list(FLAGS))
        yield browser
        browser.close()


@dataclass
class Site:
    """The parts, started, and a browser in front of them."""

    system: System
    chromium: Browser
    dashboard: str
    gateway: str
    complaints: list[str]

    def open(self, path: str = "/", **options: Any) -> Page:
        context = self.chromium.new_context(base_url=self.dashboard, **options)
        context.set_default_timeout(15_000)
        page = context.new_page()
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: dialog.accept())
        page.goto(path)
        return page

    def submit(self, **task: Any) -> str:
        body = json.dumps(task).encode()
        request = urllib.request.Request(f"{self.gateway}/tasks", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return str(json.load(answer)["task_id"])

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)


@pytest.fixture
def site(system: System, chromium: Browser) -> Iterator[Site]:
    """All parts with quick settings; afterwards nothing may have been written to the browser's console."""
    found = _site(system, chromium)
    yield found
    for context in chromium.contexts:
        context.close()
    assert found.complaints == []


def _site(system: System, chromium: Browser, **settings: str) -> Site:
    gateway, dashboard = free_port(), free_port()
    ports = {"GATEWAY_PORT": str(gateway), "DASHBOARD_PORT": str(dashboard), "GATEWAY_PROCESSES": "1"}
    system.environment.update({"DASHBOARD_REFRESH": "1", **ports, **settings})
    for part in ("gateway", "dashboard"):
        system.start(part)
    site = Site(system, chromium, f"http://127.0.0.1:{dashboard}", f"http://127.0.0.1:{gateway}", [])
    for address in (site.gateway, site.dashboard):
        wait_until(lambda address=address: _ready(address), f"{address} answers")  # type: ignore[misc]
    return site


def _ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health/live", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_from_a_failure_to_its_reason_to_its_cure(site: Site) -> None:
    site.system.start_worker(WORKER_EXECUTORS="2")
    site.system.start_housekeeper()
    page = site.open("/")
    page.get_by_text("All is well").wait_for()
    task = site.submit(type="process", data="", retry={"initial_delay": 0.3}, max_retries=1)
    # Everything from here to the group happens on the open page, which nobody reloads.
    page.locator("#count-failed", has_text="1").wait_for()
    page.get_by_role("link", name="Check the causes").click()
    page.get_by_role("link", name="NothingToProcess").first.click()
    page.get_by_role("link", name=task[-8:]).click()
    page.get_by_text("It failed for good with NothingToProcess after 2 attempts").wait_for()
    assert "raise NothingToProcess" in page.locator("#attempt-2 pre").first.inner_text()
    page.get_by_label("Data, as JSON").fill('"to be or not to be"')
    page.get_by_role("button", name="Retry with this data").click()
    page.locator("h1 .state", has_text="completed").wait_for()
    assert '"words": 6' in page.get_by_label("Result").inner_text()
    page.goto("/audit")
    assert "retried with other data" in page.locator("main").inner_text()


@pytest.mark.parametrize("size", [(1280, 800), (390, 700)], ids=["wide", "narrow"])
def test_why_edited_data_is_refused_is_in_sight(site: Site, size: tuple[int, int]) -> None:
    [dead] = bury(site.system, ["no " * 200], task_type="echo", data=json.dumps({"data": ["x"] * 400}))
    site.system.start_worker(WORKER_EXECUTORS="2")
    page = site.open(f"/tasks/{dead}", viewport={"width": size[0], "height": size[1]})
    page.get_by_role("button", name="Edit and retry").click()
    page.get_by_label("Data, as JSON").fill('{"data": ')
    page.get_by_role("button", name="Retry with this data").click()
    problem = page.get_by_role("alert")
    problem.wait_for()
    assert "JSON" in problem.inner_text()
    assert _is_in_sight(page, "#problem")
    assert _is_in_sight(page, "#edited")
    assert page.get_by_label("Data, as JSON").input_value().strip() == '{"data":'
    site.system.dead_letters.requeue(dead)
    page.locator("h1 .state", has_text="completed").wait_for()


def _is_in_sight(page: Page, selector: str) -> bool:
    inside = "box => box.top >= 0 && box.top < innerHeight && box.left >= 0 && box.right <= innerWidth"
    return bool(page.evaluate(f"({inside})(document.querySelector('{selector}').getBoundingClientRect())"))


def test_five_hundred_are_retried_at_a_rate_paused_and_resumed(site: Site) -> None:
    bury(site.system, [f"order {n} is unknown" for n in range(500)], task_type="echo", data='{"data": 1}')
    page = site.open("/dead-letters")
    page.get_by_role("link", name="500 dead letters").click()
    page.get_by_role("button", name="Retry all 500").click()
    page.get_by_role("heading", name="Retry 500 dead letters?").wait_for()
    page.get_by_label("Tasks per second").fill("100")
    page.get_by_role("button", name="Retry 500").click()
    wait_until(lambda: site.system.records.counts()[TaskState.FAILED] < 450, "it has begun")
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Resume").wait_for()
    left = site.system.records.counts()[TaskState.FAILED]
    assert 0 < left < 500
    page.wait_for_timeout(500)
    assert site.system.records.counts()[TaskState.FAILED] == left
    page.get_by_role("button", name="Resume").click()
    page.get_by_text("500 of 500 retried").wait_for()
    page.get_by_text("500 not ended: 500 in their queues").wait_for()
    page.locator(".state", has_text="following").wait_for()
    assert site.system.records.counts()[TaskState.PENDING] == 500


def test_what_is_ticked_and_opened_survives_a_refresh(site: Site) -> None:
    ids = bury(site.system, ["no"] * 3)
    page = site.open("/dead-letters")
    page.get_by_role("link", name="ValueError").first.click()
    page.get_by_role("checkbox", name=f"Select {ids[0]}").check()
    page.locator("#group-count", has_text="3").wait_for()
    bury(site.system, ["no"])
    page.locator("#group-count", has_text="4").wait_for()
    assert page.get_by_role("checkbox", name=f"Select {ids[0]}").is_checked()
    page.get_by_role("button", name="Retry selected (1)").click()
    page.get_by_role("heading", name="Retry 1 dead letter?").wait_for()


def test_a_queue_is_paused_and_everybody_is_told(site: Site) -> None:
    page = site.open("/queues")
    card = page.locator("#queue-high")
    card.get_by_text("Pause…").click()
    card.get_by_label("Reason").fill("bank is closed")
    card.get_by_role("button", name="Pause high").click()
    card.get_by_text("bank is closed").wait_for()
    other = site.open("/")
    other.get_by_text("Queue high is paused").wait_for()
    page.get_by_role("button", name="Resume").click()
    other.get_by_text("Queue high is paused").wait_for(state="detached")


def test_a_lock_is_taken_away(site: Site) -> None:
    site.system.start_housekeeper(
        HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED="true", HOUSEKEEPER_DISTRIBUTED_EXECUTION_INSTANCE_ID="hk-1"
    )
    page = site.open("/locks")
    card = page.locator("#lock-metrics")
    card.get_by_text("hk-1").wait_for()
    card.get_by_text("Make the leader step down…").click()
    card.get_by_label("Reason").fill("its node goes away")
    card.get_by_role("button", name="Step down").click()
    page.get_by_text("hk-1 is no longer the leader").wait_for()


def test_an_ordinary_lock_is_unlocked_by_force_and_its_holder_is_refused(site: Site) -> None:
    life, nothing = timedelta(minutes=5), timedelta(0)
    _, token = lock_acquire(site.system.scripts, "recovery", "nonce", "hk-7", life, nothing)
    page = site.open("/locks")
    card = page.locator("#lock-recovery")
    card.get_by_text("hk-7").wait_for()
    card.get_by_text("Force unlock…").click()
    card.get_by_label("Reason").fill("it hangs")
    card.get_by_role("button", name="Unlock").click()
    card.get_by_text("free").wait_for()
    with pytest.raises(StepRefused):
        maintenance.recover(site.system.scripts, "normal", 1, 10, FencingToken("recovery", token))
    page.get_by_text("Forced unlocks in the audit record").click()
    page.get_by_text("it hangs").wait_for()


def test_keys_lead_everywhere_and_a_hidden_tab_asks_nothing(site: Site) -> None:
    page = site.open("/")
    page.keyboard.press("g")
    page.keyboard.press("d")
    page.wait_for_url("**/dead-letters")
    page.keyboard.press("?")
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    page.keyboard.press("p")
    assert page.locator("#refresh").input_value() == "0"
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(1500)
    assert asked == []
    page.keyboard.press("t")
    assert page.locator("html").get_attribute("data-theme") in ("dark", "light")


def test_signing_in_and_what_each_role_is_offered(system: System, chromium: Browser) -> None:
    hashed = generate_password_hash("correct horse", "pbkdf2:sha256:1000")
    users = ",".join(f"{name}:{role}:{hashed}" for name, role in [("vera", "viewer"), ("anna", "admin")])
    site = _site(system, chromium, DASHBOARD_USERS=users)
    [dead] = bury(system, ["no"])
    page = site.open(f"/tasks/{dead}")
    page.get_by_label("Name").fill("vera")
    page.get_by_label("Password").fill("correct horse")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_text("It failed for good").wait_for()
    assert page.get_by_role("button", name="Retry").count() == 0
    page.get_by_role("button", name=re.compile("vera")).click()
    page.get_by_label("Name").fill("anna")
    page.get_by_label("Password").fill("correct horse")
    page.get_by_role("button", name="Sign in").click()
    page.goto(f"/tasks/{dead}")
    page.get_by_role("button", name="Delete").click()
    page.get_by_text("is deleted").wait_for()
    page.context.close()


def test_injected_scripts_do_not_run(site: Site) -> None:
    dialogs: list[str] = []
    text = "</code><script>alert(1)</script><img src=x onerror=alert(2)>\"'\u202e"
    [dead] = bury(site.system, [text], error="<b>E</b>", data=json.dumps({text: text}), tags=(text,))
    page = site.open("/")
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    for path in ("/", "/tasks", f"/tasks/{dead}", "/dead-letters"):
        page.goto(path)
        page.wait_for_timeout(300)
        assert page.locator("main script, main b, main img").count() == 0
    assert dialogs == []


_CLIPPED = """[...document.querySelectorAll(".scroll")].filter(box => box.scrollWidth > box.clientWidth + 1)
    .map(box => box.getAttribute("aria-label"))"""


def _one_of_each(site: Site) -> list[str]:
    """A schedule, a bulk action, a batch and a task of a family; their pages."""
    wait_until(lambda: '"noop"' in _text(f"{site.gateway}/types"), "the types are known")
    nightly = {"cron": "0 3 * * *", "type": "noop", "data": None}
    httpx.put(f"{site.gateway}/schedules/nightly", json=nightly).raise_for_status()
    bulk = BulkActions(site.system.scripts, site.system.dead_letters)
    action = bulk.begin(Verb.DELETE, Selection(), what="all", by="eve", rate=1)
    family = [
        {"type": "noop", "data": None, "item": "first"},
        {"type": "noop", "data": None, "depends_on": [{"item": "first"}]},
    ]
    answer = httpx.post(f"{site.gateway}/tasks/batch", json={"name": "import", "tasks": family}).json()
    pages = [f"/batches/{answer['batch_id']}", f"/tasks/{answer['items'][1]['task_id']}"]
    return ["/batches", "/schedules/nightly", f"/bulk/{action}", *pages]


LOOKS: Any = (("light", 1280), ("dark", 360), ("light", 360), ("dark", 1280))
"""Schemes and widths."""


@pytest.mark.timeout(900)
def test_every_page_is_accessible_and_fits(site: Site) -> None:
    [dead, *_] = bury(site.system, [f"order {n} is unknown and a long text follows " + "x" * 300 for n in range(3)])
    site.system.queues.pause("low", "lunch")
    site.system.start_worker(WORKER_EXECUTORS="2")
    group = site.open("/dead-letters").locator("a.count").first.get_attribute("href")
    paths = [
        "/",
        "/tasks",
        "/dead-letters",
        "/queues",
        "/limits",
        "/workers",
        "/schedules",
        "/locks",
        "/audit",
        "/bulk",
    ]
    paths += [*_one_of_each(site), f"/tasks/{dead}", str(group), "/nowhere", "/sign-in"]
    for scheme, width in LOOKS:
        context: BrowserContext = site.chromium.new_context(
            base_url=site.dashboard, color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True
        )
        page = context.new_page()
        for path in paths:
            page.goto(path)
            page.evaluate(AXE.read_text())
            found = page.evaluate("axe.run().then(r => r.violations.map(v => [v.id, v.nodes[0].html]))")
            assert found == [], (scheme, width, path, found)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{path} is wider than {width}"
            assert page.evaluate(_CLIPPED) == [], f"a table of {path} is wider than its place"
        context.close()


def test_what_a_handler_did_is_drawn_on_its_tasks_page(system: System, chromium: Browser) -> None:
    site = _site(system, chromium, TRACE_LOCALLY="true", DASHBOARD_TRACE_URL="http://jaeger.example/trace/{trace_id}")
    system.start_worker(WORKER_EXECUTORS="2")
    system.start_housekeeper()
    wait_until(lambda: '"calls"' in _text(f"{site.gateway}/types"), "the type is known")
    about = {"url": f"{site.gateway}/types?key=secret", "redis_url": system.url}
    done = site.submit(type="calls", data=about)
    dead = site.submit(type="process", data="", retry={"initial_delay": 0.3}, max_retries=1)
    for each in (done, dead):
        system.ended(each)
    for scheme, width in LOOKS:
        context: BrowserContext = chromium.new_context(
            base_url=site.dashboard, color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True
        )
        page = context.new_page()
        for task in (done, dead):
            page.goto(f"/tasks/{task}")
            page.evaluate(AXE.read_text())
            found = page.evaluate("axe.run().then(r => r.violations.map(v => [v.id, v.nodes[0].html]))")
            assert found == [], (task, found)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        context.close()
    page = site.open(f"/tasks/{done}")
    bars = page.locator("#timeline li")
    names = [each.strip() for each in bars.locator(".name").all_inner_texts()]
    assert names[:3] == ["submitted", "in the queue", "attempt 1: completed"]
    assert names[3:] == ["GET 127.0.0.1/types"] * 3 + ["STRLEN", "completed"]
    assert "secret" not in page.locator("#timeline").inner_html()
    widest = "one => Math.max(...[...one.querySelectorAll('rect')].map(each => each.getBoundingClientRect().width))"
    measured = f"all => all.map({widest})"
    widths = page.locator("#timeline svg").evaluate_all(measured)
    assert max(widths) > 100
    assert min(widths) >= 2, "also what took no time can be seen"
    assert " UTC to " in (bars.nth(2).get_attribute("title") or "")
    link = page.get_by_role("link", name="↗").get_attribute("href") or ""
    assert re.fullmatch(r"http://jaeger\.example/trace/[0-9a-f]{32}", link)
    page.goto(f"/tasks/{dead}")
    names = [each.strip() for each in page.locator("#timeline .name").all_inner_texts()]
    assert [name for name in names if name != "in the queue"] == [
        "submitted",
        "attempt 1: failed",
        "pause before the next attempt",
        "attempt 2: failed",
        "dead letter",
    ]
    assert site.complaints == []
    for context in chromium.contexts:
        context.close()


def _text(address: str) -> str:
    with urllib.request.urlopen(address, timeout=5) as answer:
        return str(answer.read().decode())
