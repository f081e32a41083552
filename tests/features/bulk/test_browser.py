"""Bulk actions in a real browser."""

from __future__ import annotations

from typing import Any

import pytest

from firmq.shared.domain.task import TaskState
from tests.integration.dashboard.test_browser import LOOKS, Site, _look, chromium, site
from tests.support.harness import wait_until

__all__ = ["chromium", "site"]


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_tasks_of_a_filter_are_cancelled_after_a_review_and_restored(site: Site, scheme: Any, width: int) -> None:
    ids = [site.system.submit("noop", queue="low", tags=("import",)) for _ in range(25)]
    site.system.queues.pause("low", "lunch")
    site.system.start_housekeeper()
    page = site.open("/", color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True)
    _look(page, f"overview-{scheme}-{width}")
    page.goto("/tasks?status=pending&tag=import")
    page.get_by_text("Act on all tasks of this filter").click()
    _look(page, f"menu-{scheme}-{width}")
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("heading", name="Cancel 25 tasks?").wait_for()
    _look(page, f"review-{scheme}-{width}")
    page.get_by_label("Tasks per second").fill("1000")
    page.get_by_role("button", name="Cancel 25").click()
    page.get_by_text("finished").wait_for()
    assert {site.system.records.state(each) for each in ids} == {TaskState.CANCELLED}
    page.reload()
    _look(page, f"action-{scheme}-{width}")
    page.get_by_role("button", name="Undo: restore 25 tasks").click()
    page.get_by_text("Restoring").wait_for()
    wait_until(lambda: {site.system.records.state(each) for each in ids} == {TaskState.PENDING}, "all are restored")
    page.goto("/audit?what=bulk")
    _look(page, f"audit-{scheme}-{width}")
    page.context.close()
