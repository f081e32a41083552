"""Durable functions in a real browser."""

from __future__ import annotations

import os

from playwright.sync_api import Browser, BrowserContext

from tests.integration.dashboard.test_browser import AXE, LOOKS, PATIENCE, _site, _text, chromium
from tests.support.harness import System, wait_until

__all__ = ["chromium"]


def test_a_person_approves_what_a_handler_waits_for(system: System, chromium: Browser) -> None:
    site = _site(system, chromium)
    system.start_worker(TASK_MODULES="examples.order_saga.tasks", SHOP_JOURNAL=str(system.log_dir / "journal"))
    system.start_housekeeper()
    wait_until(lambda: '"saga-order"' in _text(f"{site.gateway}/types"), "the type is known")
    data = {"order": 1, "article": "unicorn", "amount": 5000, "thank_after": 0}
    waiting = site.submit(type="saga-order", data=data)
    wait_until(lambda: system.records.get(waiting).summary.awaits, "the handler waits")
    refunded = site.submit(type="saga-order", data={**data, "amount": 20})
    system.ended(refunded)
    for scheme, width in LOOKS:
        context: BrowserContext = chromium.new_context(
            base_url=site.dashboard, color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True
        )
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        for task in (waiting, refunded):
            page.goto(f"/tasks/{task}")
            page.evaluate("document.querySelectorAll('#steps details').forEach(each => each.open = true)")
            page.evaluate(AXE.read_text())
            found = page.evaluate("axe.run().then(r => r.violations.map(v => [v.id, v.nodes[0].html]))")
            assert found == [], (task, found)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            if folder := os.environ.get("SHOTS"):
                page.screenshot(path=f"{folder}/{task[-4:]}-{scheme}-{width}.png", full_page=True)
        context.close()
    page = site.open(f"/tasks/{waiting}")
    names = [each.strip() for each in page.locator("#timeline li .name").all_inner_texts()]
    assert names[2] == "attempt 1: suspended"
    page.on("dialog", lambda dialog: dialog.accept())
    page.locator("#signal").get_by_label("approved").select_option("true")
    page.locator("#signal").get_by_role("button", name="Send signal").click()
    page.get_by_text("The task has signal approval.").wait_for()
    assert system.ended(waiting).result["order"] == "refunded"
    assert site.complaints == []
    page.context.close()
