"""A task's page shows what was told outside of its end, and sends it again."""

from __future__ import annotations

from firmq.shared.domain.task import TaskState, Webhook
from tests.integration.dashboard.conftest import Browser, bury
from tests.support.harness import System

HOOK = Webhook(url="https://shop.example/hooks", events=("failed",))


def test_the_page_of_a_task_lists_its_deliveries_and_redelivers(browser: Browser, system: System) -> None:
    [task] = bury(system, ["no"], webhook=HOOK)
    [delivery] = system.records.deliveries(system.records.get(task))
    page = browser.text(f"/tasks/{task}")
    assert "https://shop.example/hooks" in page
    assert "is called when the task has failed" in page
    assert f'href="/tasks/{delivery.id}"' in page
    assert "Redeliver" not in page, "it is on its way"
    browser.post(f"/tasks/{delivery.id}/cancel")
    assert f'action="/tasks/{delivery.id}/redeliver"' in browser.text(f"/tasks/{task}")
    assert "back in its queue" in browser.post(f"/tasks/{delivery.id}/redeliver").text
    states = [each.state for each in system.records.deliveries(system.records.get(task))]
    assert states == [TaskState.PENDING, TaskState.CANCELLED]
    assert f'href="/tasks/{task}"' in browser.text(f"/tasks/{delivery.id}")


def test_a_task_without_a_webhook_says_nothing_of_one(browser: Browser, system: System) -> None:
    assert "Webhook" not in browser.text(f"/tasks/{system.submit('noop')}")
