"""The three stories, played in a browser: each click is one that docs/operate/dashboard.md names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.labs.stories.shop import BROKEN, CHARGE, NEW
from tests.support.harness import ROOT, System

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

DOCUMENT = ROOT / "docs" / "operate" / "dashboard.md"


@dataclass(frozen=True, slots=True)
class Goal:
    """What was reached, with how many clicks since the count began, and how many it may take."""

    story: str
    what: str
    clicks: int
    most: int
    seen: str

    @property
    def well(self) -> bool:
        """Returns whether it took no more clicks than it may."""
        return self.clicks <= self.most


@dataclass(slots=True)
class Player:
    """A person at a browser, who begins each story at the overview."""

    page: Page
    folder: Path | None = None
    goals: list[Goal] = field(default_factory=list)
    made: dict[str, list[str]] = field(default_factory=dict)
    """The names of the clicks of each story."""
    story: str = ""
    clicks: int = 0

    def begin(self, story: str) -> None:
        """Begins a story at the overview."""
        self.story, self.clicks, self.made[story] = story, 0, []
        self.page.goto("/")

    def click(self, name: str, target: Locator) -> None:
        """Clicks, and counts it."""
        target.click()
        self.clicks += 1
        self.made[self.story].append(name)

    def reached(self, what: str, most: int, seen: Locator, *, anew: bool = False) -> None:
        """Waits until something can be read; `anew` counts the next clicks from here."""
        try:
            seen.wait_for()
        except Exception:
            if self.folder:
                self.page.screenshot(path=self.folder / "failed.png", full_page=True)
            raise
        text = " ".join(seen.inner_text().split())
        self.goals.append(Goal(self.story, what, self.clicks, most, text[:100]))
        if self.folder:
            self.page.screenshot(path=self.folder / f"{len(self.goals)}.png")
        if anew:
            self.clicks = 0


def stuck_queue(player: Player) -> None:
    """All executors run reports that hang; everything else waits."""
    page = player.page
    player.begin("A queue makes no progress")
    page.locator("#waiting", has_text="no free executor").wait_for(timeout=60_000)
    player.reached("the reason is read", 0, page.locator("#busy", has_text="4 × nightly-report"))


def dead_letters(player: Player) -> None:
    """Charges fail because a bank does not answer; later it does."""
    page = player.page
    player.begin("Dead letters grow")
    alert = page.locator(".alert", has_text=f"{CHARGE} tasks have failed").filter(has_text="BankTimeout")
    player.click("the alert", alert.get_by_role("link"))
    player.reached("the cause is read", 1, page.locator("blockquote.error", has_text="bank-north did not answer"))
    player.click("Who is hit", page.get_by_role("link", name="Who is hit"))
    player.reached(
        "the customers are known", 3, page.locator(".card", has_text="customer").filter(has_text="7 different")
    )
    player.click("This cause", page.get_by_role("link", name="This cause"))
    _replay(player, "the outcome of the replay is read", 5)


def broken_release(player: Player, system: System) -> None:
    """A release breaks a type: it is paused, mended, and its failures are replayed."""
    page = player.page
    player.begin("A release breaks a type")
    player.click("Types", page.get_by_role("navigation", name="Sections").get_by_role("link", name="Types"))
    player.click(BROKEN, page.locator("main").get_by_role("link", name=BROKEN, exact=True))
    version = page.locator("tr", has=page.get_by_role("link", name=NEW))
    player.reached("the broken version is found", 2, version, anew=True)
    player.click("Pause…", page.get_by_text("Pause…"))
    page.get_by_label("Reason").fill(f"{NEW} is broken")
    player.click(f"Pause {BROKEN}", page.get_by_role("button", name=f"Pause {BROKEN}"))
    player.reached("the type is paused", 2, page.locator("p.paused", has_text=f"{NEW} is broken"), anew=True)
    player.click("Resume", page.get_by_role("button", name="Resume"))
    player.click("the cause", page.locator(".card", has_text="Causes of failure").get_by_role("link", name="KeyError"))
    _replay(player, "its failures are replayed", 5)


def _replay(player: Player, what: str, most: int) -> None:
    page = player.page
    player.click("Retry all", page.get_by_role("button", name=re.compile("^Retry all")))
    player.click("Retry", page.get_by_role("button", name=re.compile(r"^Retry \d")))
    page.locator(".state", has_text="finished").wait_for(timeout=120_000)
    player.reached(what, most, page.locator(".outcomes li", has_text="completed"))


@contextmanager
def browser_page(address: str) -> Iterator[Page]:
    """Yields a page of a real browser."""
    import shutil

    from playwright.sync_api import sync_playwright

    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=binary, args=["--no-sandbox", "--disable-dev-shm-usage"])
        context = browser.new_context(base_url=address, viewport={"width": 1280, "height": 900})
        context.set_default_timeout(30_000)
        yield context.new_page()
        browser.close()


def documented() -> dict[str, list[str]]:
    """Returns the clicks that the documentation names in each story: what is in bold there."""
    section = DOCUMENT.read_text().partition("## Three stories\n")[2].partition("\n## ")[0]
    stories = re.split(r"\n### ", section)[1:]
    return {each.partition("\n")[0]: re.findall(r"\*\*(.+?)\*\*", each) for each in stories}


def table(goals: list[Goal]) -> str:
    """Returns the goals as a table."""
    rows = [f"{'story':24} {'goal':36} {'clicks':>6} {'limit':>6}  seen"]
    rows += [f"{each.story:24} {each.what:36} {each.clicks:6} {each.most:6}  {each.seen}" for each in goals]
    return "\n".join(rows)
