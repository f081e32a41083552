"""What a person does, done in a real browser in front of the real parts. Without chromium it is skipped at a desk."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import unquote

import httpx
import pytest
from werkzeug.security import generate_password_hash

from firmq.shared.domain.lock import FencingToken
from firmq.shared.domain.task import TaskState
from firmq.shared.errors import StepRefused
from firmq.shared.stores import maintenance
from firmq.shared.stores.locks import lock_acquire
from firmq.shared.stores.task_types import TaskType, TaskTypes
from tests.integration.dashboard.conftest import bury
from tests.support.features import rows
from tests.support.harness import System, free_port, wait_until
from tests.support.keys import keys

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Route

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


PATIENCE = 120_000
"""Milliseconds to wait for what a page is to show."""


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
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: dialog.accept())
        page.goto(path)
        return page

    def submit(self, **task: Any) -> str:
        body = json.dumps(task).encode()
        request = urllib.request.Request(f"{self.gateway}/tasks", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(json.load(answer)["task_id"])

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)


@pytest.fixture
def site(system: System, chromium: Browser) -> Iterator[Site]:
    """All parts with quick settings; afterwards nothing may have been written to the browser's console."""
    found = _site(system, chromium)
    wait_until(lambda: _ready(found.dashboard, ""), "the overview is there")  # an error page is not refreshed
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


def _ready(address: str, path: str = "health/live") -> bool:
    try:
        with urllib.request.urlopen(f"{address}/{path}", timeout=20) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_from_a_failure_to_its_reason_to_its_cure(site: Site) -> None:
    from playwright.sync_api import TimeoutError as PlaywrightTimeout

    site.system.start_worker(WORKER_EXECUTORS="2")
    site.system.start_housekeeper()
    page = site.open("/")
    alerts = page.get_by_label("Alerts")
    try:
        alerts.get_by_text("All is well").wait_for()
    except PlaywrightTimeout:
        pytest.fail(f"not all is well: {page.title()}: {page.locator('body').inner_text()[:2000]}")
    task = site.submit(type="process", data="", retry={"initial_delay": 0.3}, max_retries=1)
    # Everything from here to the group happens on the open page, which is not reloaded.
    page.locator("#count-failed", has_text="1").wait_for()
    page.get_by_role("link", name="NothingToProcess").first.click()
    page.get_by_role("link", name=task[-8:]).click()
    page.get_by_text("It failed permanently with NothingToProcess after 2 attempts").wait_for()
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
    _wait_until_in_sight(page, "#problem")
    _wait_until_in_sight(page, "#edited")
    assert page.get_by_label("Data, as JSON").input_value().strip() == '{"data":'
    site.system.dead_letters.requeue(dead)
    page.locator("h1 .state", has_text="completed").wait_for()


@pytest.mark.parametrize("size", [(1280, 800), (390, 700)], ids=["wide", "narrow"])
def test_a_schedule_is_made_with_a_form(site: Site, size: tuple[int, int]) -> None:
    site.system.start_worker(WORKER_EXECUTORS="2")
    page = site.open("/schedules", viewport={"width": size[0], "height": size[1]})
    page.get_by_role("link", name="New schedule").click()
    page.get_by_label("Type of its tasks").select_option("process")
    page.get_by_role("button", name="Continue").click()
    page.get_by_label("Name").fill("hourly")
    page.get_by_label("Data").fill('"to be or not to be"')
    page.get_by_label("Interval").fill("one hour")
    page.locator("#times").get_by_text("must be a whole number").wait_for()
    page.get_by_role("button", name="Create").click()
    page.get_by_role("alert").wait_for()
    field = page.get_by_label("Interval")
    _wait_until_in_sight(page, "[aria-invalid]")
    page.wait_for_function("document.activeElement.matches('[aria-invalid]')")
    assert field.evaluate("field => field === document.activeElement")
    assert field.input_value() == "one hour"
    field.fill("3600")
    page.locator("#times time").nth(4).wait_for()
    page.get_by_role("button", name="Create").click()
    page.get_by_role("heading", name="hourly").wait_for()
    page.goto("/schedules/hourly/edit")
    page.get_by_label("Interval").fill("7200")
    page.get_by_role("button", name="Save").dblclick()
    page.get_by_text("Runs process every 7200 s").wait_for()


def test_what_is_typed_before_the_scripts_are_there_is_previewed(site: Site) -> None:
    site.system.start_worker(WORKER_EXECUTORS="2")
    page = site.open("/schedules/+new?type=process")
    held: list[Any] = []
    typed = False
    page.route("**/*.js*", lambda route: route.continue_() if typed else held.append(route))
    page.reload(wait_until="commit")
    page.get_by_label("Interval").fill("one hour")
    page.locator("body[data-refresh]").wait_for()  # answers to its questions are also what hands over the requests
    assert held
    typed = True
    for script in held:
        script.continue_()
    page.locator("#times").get_by_text("must be a whole number").wait_for()


def _wait_until_in_sight(page: Page, selector: str) -> None:
    """A page scrolls there, and moves the focus, by a script that may run after it is shown."""
    inside = "box => box.top >= 0 && box.top < innerHeight && box.left >= 0 && box.right <= innerWidth"
    page.wait_for_function(f"({inside})(document.querySelector('{selector}').getBoundingClientRect())")


def test_five_hundred_are_retried_at_a_rate_paused_and_resumed(site: Site) -> None:
    bury(site.system, [f"order {n} is unknown" for n in range(500)], task_type="echo", data='{"data": 1}')
    housekeeper = site.system.start_housekeeper()
    page = site.open("/dead-letters")
    page.get_by_role("link", name="500 dead letters").click()
    page.get_by_role("button", name="Retry all 500").click()
    page.get_by_role("heading", name="Retry 500 dead letters?").wait_for()
    page.get_by_label("Tasks per second").fill("50")
    page.get_by_role("button", name="Retry 500").click()
    wait_until(lambda: site.system.records.counts()[TaskState.FAILED] < 500, "it has begun")
    housekeeper.send_signal(signal.SIGSTOP)  # however long the browser takes, it is not done before it is paused
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Resume").wait_for()
    housekeeper.send_signal(signal.SIGCONT)
    left = site.system.records.counts()[TaskState.FAILED]
    assert 0 < left < 500
    page.wait_for_timeout(500)
    assert site.system.records.counts()[TaskState.FAILED] == left
    page.get_by_role("button", name="Resume").click()
    page.get_by_text("500 of 500 retried").wait_for()
    page.get_by_text("500 not ended: see why tasks wait").wait_for()
    page.locator(".state", has_text="following").wait_for()
    assert site.system.records.counts()[TaskState.PENDING] == 500


def test_rows_of_a_list_are_reached_with_keys(site: Site) -> None:
    ids = bury(site.system, ["no"] * 3)
    page = site.open("/dead-letters")
    page.keyboard.press("j")
    page.keyboard.press("e")
    page.locator("#group-count", has_text="3").wait_for()
    page.wait_for_load_state()  # the script that hears the keys runs after the text is there
    boxes = page.locator(".pick")
    for key in ("j", "x", "j", "j", "j", "k", "x"):
        page.keyboard.press(key)
        if key == "k":
            page.evaluate("document.activeElement.blur()")  # as a refresh may do
    assert [boxes.nth(each).is_checked() for each in range(3)] == [True, True, False]
    page.keyboard.press("x")
    page.keyboard.press("e")
    page.wait_for_url("**/tasks/*")
    assert page.url.rpartition("/")[2] in ids


def test_a_row_is_kept_in_mind_when_a_refresh_replaces_it(site: Site) -> None:
    bury(site.system, ["no"] * 3)
    page = site.open("/tasks?status=failed")
    page.locator("main tbody tr").nth(2).wait_for()
    page.keyboard.press("j")
    page.keyboard.press("j")
    replaced = "row => row.replaceWith(Object.assign(row.cloneNode(true), {id: ''}))"
    page.locator("main tbody tr").nth(1).evaluate(replaced)
    page.keyboard.press("j")
    assert page.locator("main tbody tr").nth(2).evaluate("row => row.contains(document.activeElement)")


def test_the_chart_of_executors_is_drawn(site: Site) -> None:
    page = site.open("/workers")
    page.locator("#chart-slots canvas").wait_for()
    page.evaluate("() => new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))")


def test_on_a_phone_the_sections_are_a_bar_at_the_bottom(site: Site) -> None:
    page = site.open("/tasks", viewport={"width": 360, "height": 700})
    bar = page.locator("header.top > .pages")
    box = bar.bounding_box()
    assert box
    assert (round(box["y"] + box["height"]), round(box["width"])) == (700, 360)
    assert bar.locator("a").count() == 6
    heights = bar.locator("a").evaluate_all("all => all.map(each => each.getBoundingClientRect().height)")
    assert min(heights) >= 44
    bar.get_by_role("link", name="Workers").click()
    page.get_by_role("heading", name="Workers").first.wait_for()


def test_dangerous_actions_stand_apart(site: Site) -> None:
    [dead] = bury(site.system, ["no"])
    page = site.open(f"/tasks/{dead}", viewport={"width": 1280, "height": 800})
    right = {
        name: page.get_by_role("button", name=name, exact=True).bounding_box()
        for name in ("Retry", "Copy as curl", "Delete")
    }
    assert all(right.values())
    assert right["Delete"]["x"] > right["Copy as curl"]["x"] + right["Copy as curl"]["width"] + 100  # type: ignore[index]


def test_times_are_local_or_utc_as_the_user_chose(site: Site) -> None:
    bury(site.system, ["no"])
    page = site.open("/tasks", timezone_id="Pacific/Honolulu", locale="en-GB")
    time = page.locator("td time.at").first
    moment = time.get_attribute("datetime") or ""
    exact = "time => time.dataset.exact"
    assert moment[11:19] not in time.evaluate(exact)
    page.get_by_role("button", name="Switch times between local and UTC").click()
    page.locator("#zone", has_text="UTC").wait_for()
    assert moment[11:19] in time.evaluate(exact)
    page.goto(f"/tasks?since={moment[:19]}Z")
    assert page.get_by_label("From").input_value().startswith(moment[:16])
    page.get_by_role("button", name="Find").click()
    page.wait_for_url("**since=*")
    assert moment[:19] in unquote(page.url)
    page.get_by_role("button", name="Switch times between local and UTC").click()
    page.locator("#zone", has_text="local").wait_for()


def test_what_is_ticked_and_opened_survives_a_refresh(site: Site) -> None:
    ids = bury(site.system, ["no"] * 3)
    page = site.open("/dead-letters")
    page.get_by_role("link", name="ValueError").first.click()
    page.get_by_role("checkbox", name=f"Select {ids[0][-8:]}").check()
    page.locator("#group-count", has_text="3").wait_for()
    bury(site.system, ["no"])
    page.locator("#group-count", has_text="4").wait_for()
    assert page.get_by_role("checkbox", name=f"Select {ids[0][-8:]}").is_checked()
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
    page.get_by_text("It failed permanently").wait_for()
    assert page.get_by_role("button", name="Retry").count() == 0
    page.get_by_role("button", name=re.compile("vera")).click()
    page.get_by_label("Name").fill("anna")
    page.get_by_label("Password").fill("correct horse")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name=re.compile("anna")).wait_for()
    page.goto(f"/tasks/{dead}")
    page.get_by_role("button", name="Delete").click()
    page.get_by_text("is deleted").wait_for()
    page.context.close()


def test_a_refresh_does_not_keep_a_page_that_is_being_left(site: Site) -> None:
    """The task is gone for a refresh whose answer comes while the answer to its deletion is on the way."""
    [dead] = bury(site.system, ["no"])
    page = site.open(f"/tasks/{dead}")
    refreshes: list[Route] = []
    deletions: list[Route] = []
    page.route(f"**/tasks/{dead}", lambda route: refreshes.append(route))  # noqa: PLW0108
    page.route("**/delete", lambda route: deletions.append(route))  # noqa: PLW0108
    page.keyboard.press("r")
    page.get_by_role("button", name="Delete").click(no_wait_after=True)
    while not (refreshes and deletions):
        page.wait_for_timeout(10)
    answer = deletions[0].fetch(max_redirects=0)
    with page.expect_response(lambda response: response.url.endswith(dead) and response.status == 404):
        refreshes[0].continue_()
    page.wait_for_timeout(300)
    deletions[0].fulfill(response=answer)
    page.get_by_text("is deleted").wait_for()
    assert all("404" in each for each in site.complaints), "htmx notes the refresh"
    site.complaints.clear()


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
    """A schedule, a batch, a task of a family and what features have; their pages."""
    wait_until(lambda: '"noop"' in _text(f"{site.gateway}/types"), "the types are known")
    nightly = {"cron": "0 3 * * *", "type": "noop", "data": None}
    httpx.put(f"{site.gateway}/schedules/nightly", json=nightly, timeout=60).raise_for_status()
    more = [make(site.system) for make in rows("PAGES_OF_SYSTEM")]
    family = [
        {"type": "noop", "data": None, "item": "first"},
        {"type": "noop", "data": None, "depends_on": [{"item": "first"}]},
    ]
    answer = httpx.post(f"{site.gateway}/tasks/batch", json={"name": "import", "tasks": family}, timeout=60).json()
    pages = [f"/batches/{answer['batch_id']}", f"/tasks/{answer['items'][1]['task_id']}"]
    return ["/batches", "/schedules/nightly", "/schedules/nightly/edit", *more, *pages]


LOOKS: Any = (("light", 1280), ("dark", 360), ("light", 360), ("dark", 1280))[: 4 if os.environ.get("TEST_LONG") else 2]
"""Schemes and widths: each of them, and with TEST_LONG=1 each pair."""


@pytest.mark.timeout(900)
def test_every_page_is_accessible_and_fits(site: Site) -> None:
    [dead, *_] = bury(site.system, [f"order {n} is unknown and a long text follows " + "x" * 300 for n in range(3)])
    site.system.queues.pause("low", "lunch")
    site.system.start_worker(WORKER_EXECUTORS="2")
    group = site.open("/dead-letters").locator("a.count").first.get_attribute("href")
    plain = (
        "/ /tasks /dead-letters /types /types/noop /analytics /queues /limits "
        "/workers /schedules /locks /audit /audit?who=somebody /tasks?status=pending "
        "/tasks?deleted=yes /tasks/new /tasks/new?type=firmq.http /schedules/+new?type=process"
    )
    paths = [*plain.split(), *rows("PAGES"), *rows("SHOWN"), f"/tasks/new?from={dead}"]
    paths += [*_one_of_each(site), f"/tasks/{dead}", str(group), "/nowhere", "/sign-in"]
    for scheme, width in LOOKS:
        context: BrowserContext = site.chromium.new_context(
            base_url=site.dashboard, color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True
        )
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        for path in paths:
            page.goto(path)
            page.evaluate(AXE.read_text())
            found = page.evaluate("axe.run().then(r => r.violations.map(v => [v.id, v.nodes[0].html]))")
            assert found == [], (scheme, width, path, found)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{path} is wider than {width}"
            assert page.evaluate(_CLIPPED) == [], f"a table of {path} is wider than its place"
        context.close()


def _violations(page: Page) -> Any:
    """What axe finds; a page that is replaced meanwhile, by a click for instance, is looked at again."""
    from playwright.sync_api import Error as PlaywrightError

    for tries in range(3):
        try:
            page.wait_for_load_state("load")
            page.evaluate(AXE.read_text())
            return page.evaluate("axe.run().then(r => r.violations.map(v => [v.id, v.nodes[0].html]))")
        except PlaywrightError:
            if tries == 2:
                raise
    return None


def _look(page: Page, name: str) -> None:
    """Checks a page for accessibility and width; writes a picture where SCREENSHOTS names a folder."""
    found = _violations(page)
    assert found == [], (name, found)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
    assert page.evaluate(_CLIPPED) == [], name
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=f"{folder}/{name}.png", full_page=True)


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_a_broken_type_is_found_paused_and_replayed(
    system: System, chromium: Browser, tmp_path: Path, scheme: Any, width: int
) -> None:
    site = _site(system, chromium, HISTORY_URL=f"sqlite:///{tmp_path}/history.db", APP_VERSION="1.42")
    system.start_housekeeper()
    wait_until(lambda: system.redis.exists(keys.HISTORY), "ends are registered for the history")
    for number in range(40):
        data = json.dumps({"customer": {"id": f"c-{number % 7}"}, "amount": number, "note": "x" * 60})
        bury(system, ["the card is unknown"], task_type="echo", data=data, tags=("eu",))
    system.start_worker(WORKER_EXECUTORS="2")
    for each in [system.submit("echo", "1") for _ in range(20)]:
        system.ended(each)
    fed = f"{site.gateway}/analytics?range=1h&type=echo"
    wait_until(lambda: json.loads(_text(fed))["total"]["completed"] == 20, "the history is fed")
    page = site.open("/", color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True)
    name = f"{scheme}-{width}"

    page.get_by_role("link", name="Types", exact=True).first.click()
    _look(page, f"types-{name}")
    page.get_by_role("link", name="echo", exact=True).click()
    page.get_by_role("heading", name="Causes of failure").wait_for()
    page.get_by_role("img", name="Deploys: 1.42").first.wait_for()
    _look(page, f"type-{name}")
    page.get_by_text("Pause…").click()
    page.get_by_label("Reason").fill("1.42 breaks it")
    page.get_by_label("Until").fill("2100-01-01T12:00")
    _look(page, f"type-pause-{name}")
    page.get_by_role("button", name="Pause echo").click()
    page.get_by_text("Type echo is paused until 2100-01-01").wait_for()
    task = system.submit("echo", "2")
    wait_until(lambda: "type_paused" in _text(f"{site.gateway}/waiting"), "it waits for the pause")
    page.reload()
    _look(page, f"type-paused-{name}")
    page.goto("/")
    page.get_by_text("type echo is paused").wait_for()
    page.goto("/types/echo")
    page.get_by_role("button", name="Resume").click()
    system.ended(task)

    page.goto("/dead-letters")
    page.get_by_role("link", name="40 dead letters").click()
    _look(page, f"cause-{name}")
    page.get_by_role("link", name="Who is hit").click()
    page.get_by_text("7 different, 7 of them more than three times").wait_for()
    _look(page, f"who-{name}")
    page.get_by_role("link", name="← This cause").click()
    page.get_by_role("button", name="Retry all 40…").click()
    page.get_by_label("Retry only so many first").fill("3")
    page.get_by_label("Tasks per second").fill("1000")
    _look(page, f"canary-{name}")
    page.get_by_role("button", name="Retry 40").click()
    page.get_by_role("listitem").filter(has_text="40 completed").wait_for(timeout=60_000)
    page.reload()
    _look(page, f"outcome-{name}")
    assert site.complaints == []
    page.context.close()


def test_what_a_handler_did_is_drawn_on_its_tasks_page(system: System, chromium: Browser) -> None:
    site = _site(system, chromium, TRACE_LOCALLY="true", DASHBOARD_TRACE_URL="http://jaeger.example/trace/{trace_id}")
    system.start_worker(WORKER_EXECUTORS="2")
    system.start_housekeeper()
    wait_until(lambda: '"calls"' in _text(f"{site.gateway}/types"), "the type is known")
    key = f"{keys.prefix}firmq:calls"
    about = {"url": f"{site.gateway}/types?key=secret", "redis_url": system.url.partition("?")[0], "key": key}
    done = site.submit(type="calls", data=about)
    dead = site.submit(type="process", data="", retry={"initial_delay": 0.3}, max_retries=1)
    for each in (done, dead):
        system.ended(each)
    for scheme, width in LOOKS:
        context: BrowserContext = chromium.new_context(
            base_url=site.dashboard, color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True
        )
        context.set_default_timeout(PATIENCE)
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
    with urllib.request.urlopen(address, timeout=60) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_tasks_are_searched_and_an_incident_is_read(system: System, chromium: Browser, scheme: Any, width: int) -> None:
    site = _site(system, chromium, APP_VERSION="1.42")
    [dead, *_] = bury(system, ["card 7 declined"] * 3, task_type="echo", data='{"customer": {"id": 42}}')
    bury(system, ["timed out"], task_type="echo", data='{"customer": {"id": 43}}', error="TimeoutError")
    system.start_worker(WORKER_EXECUTORS="2")
    wait_until(lambda: system.redis.zcard(keys.DEPLOYS), "the version is seen")
    system.queues.pause("low", "lunch")
    page = site.open("/", color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True)
    name = f"{scheme}-{width}"

    page.wait_for_function("document.querySelector('.chart canvas')")
    _look(page, f"deploys-{name}")
    page.keyboard.press("Control+k")
    palette = page.get_by_role("dialog", name="Search")
    box = palette.get_by_role("combobox")
    box.fill("data.")
    palette.get_by_role("option", name="data.customer.id: 4").wait_for()
    box.press("Tab")
    palette.get_by_role("option", name="data.customer.id:42 3").wait_for()
    _look(page, f"palette-{name}")
    box.press("ArrowDown")
    box.press("Enter")
    page.wait_for_url("**/tasks?search=data.customer.id*")
    page.locator(f"#row-{dead}").wait_for()
    assert page.locator(".tasks tbody tr").count() == 3
    _look(page, f"search-{name}")
    page.keyboard.press("/")
    box.fill("timel")
    palette.get_by_role("option", name="Go to Timeline").click()
    page.get_by_role("heading", name="Timeline").wait_for()
    page.get_by_text("Version 1.42 began to serve").wait_for()
    page.get_by_text("echo failed for the first time with TimeoutError").wait_for()
    _look(page, f"timeline-{name}")
    page.context.close()
    assert site.complaints == []


def test_requests_are_sent_from_the_documentation_of_the_api(site: Site) -> None:
    page = site.open(f"{site.gateway}/docs")
    operation = page.locator(".opblock", has=page.locator("[data-path='/queues']")).first
    operation.locator(".opblock-summary-control").click()
    operation.get_by_role("button", name="Try it out").click()
    operation.get_by_role("button", name="Execute").click()
    operation.locator(".live-responses-table", has_text='"items"').wait_for()
    assert "/docs#/" in page.url, "an operation has an address"


def test_a_refresh_that_fails_is_said_until_one_succeeds(site: Site) -> None:
    page = site.open("/")
    page.route("**/*", lambda route: route.fulfill(status=503, body="no"))
    page.keyboard.press("r")
    page.locator("#offline", has_text="It tries again every").wait_for()
    page.unroute("**/*")
    page.keyboard.press("r")
    page.locator("#offline").wait_for(state="hidden")
    site.complaints[:] = [each for each in site.complaints if "Error Code 503" not in each]


def test_a_person_changes_the_data_of_a_cause_and_retries_it(site: Site) -> None:
    TaskTypes(site.system.redis).publish(
        [TaskType(name="fail", schema={"properties": {"amount": {"type": "integer"}}})]
    )
    site.system.start_housekeeper()
    ids = bury(site.system, [f"{n} no" for n in range(5)])
    page = site.open("/dead-letters")
    page.locator("main").get_by_role("link", name="ValueError").first.click()
    page.get_by_role("button", name="Change the data and retry").click()
    page.get_by_label("Fields and their new values").fill('{"amount": "x"}')
    page.get_by_role("button", name="Preview the change").click()
    page.get_by_role("alert").get_by_text("5 of 5 dead letters").wait_for()
    assert page.get_by_role("button", name="Retry 5 with this change").is_disabled()
    page.get_by_label("Fields and their new values").fill('{"amount": 4}')
    page.get_by_role("button", name="Preview the change").click()
    page.get_by_role("button", name="Retry 5 with this change").click()
    page.get_by_text('with data changed by {"amount": 4}').first.wait_for()
    wait_until(lambda: {site.system.records.get(each).data["amount"] for each in ids} == {4}, "all are changed")
