"""The search of the list of tasks: one box."""

from __future__ import annotations

from collections.abc import Callable

from tests.integration.dashboard.conftest import Browser, bury
from tests.support.harness import System


def test_the_box_finds_tasks_by_their_data_and_keeps_its_words(browser: Browser, system: System) -> None:
    [one] = bury(system, ["declined"], data='{"customer": 42}')
    [other] = bury(system, ["declined"], data='{"customer": 43}')
    page = browser.text("/tasks?search=error:declined+data.customer:42")
    assert f"row-{one}" in page
    assert f"row-{other}" not in page
    assert 'value="error:declined data.customer:42"' in page
    assert "row-" not in browser.text("/tasks?search=data.customer:44")


def test_an_id_opens_the_task_and_a_part_of_it_lists_it(browser: Browser, system: System) -> None:
    task = system.submit("noop")
    assert browser.get(f"/tasks?search={task}").location == f"/tasks/{task}"
    assert f"row-{task}" in browser.text(f"/tasks?search={task[-8:]}")
    assert "No task matches" in browser.text("/tasks?search=unknown")


def test_a_word_that_cannot_be_read_is_named(browser: Browser) -> None:
    answer = browser.get("/tasks?search=colour:red")
    assert answer.status_code == 400
    assert "there is no field &#39;colour&#39;" in answer.text
    assert browser.get("/tasks?search=type:a&type=b").status_code == 400
    assert browser.get("/tasks?search=" + "x" * 501).status_code == 400


def test_hidden_fields_are_not_searched(open_browser: Callable[..., Browser], system: System) -> None:
    bury(system, ["declined"], data='{"card": {"number": "4111"}}')
    hidden = open_browser(dashboard_redact="number")
    answer = hidden.get("/tasks?search=data.card.number:4111")
    assert answer.status_code == 400
    assert "are hidden" in answer.text
