"""The page of a task lists its steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from firmq.dashboard.features.durable.queries import MOST_STEPS
from firmq.shared.domain.step import StepKind, encode_step, with_schema
from firmq.shared.features.durable.store import DurableSteps
from tests.integration.dashboard.conftest import Browser
from tests.support.attempt_ends import claiming, ended, report
from tests.support.harness import System


def running(system: System) -> DurableSteps:
    task = system.submit("noop")
    system.scripts.call("claim", *claiming("w", "t", 60_000_000, 1, 1 << 20, "normal", 1))
    return DurableSteps(system.scripts, task, "t", most=1000, most_bytes=1 << 20)


def test_steps_have_their_results_durations_and_attempts(open_browser: Callable[..., Browser], system: System) -> None:
    steps = running(system)
    started = 1_800_000_000_000_000
    value = b'{"payment":"p-1","password":"hunter2","note":"<b>"}'
    steps.save(
        "charge",
        encode_step(StepKind.RESULT, value, attempt=3, started_us=started, ended_us=started + 2_000_000, tries=2),
    )
    error = b'{"type":"OutOfStock","message":"none left"}'
    steps.save("ship", encode_step(StepKind.ERROR, error, attempt=4, started_us=started + 1, ended_us=started + 2))
    page = open_browser().text(f"/tasks/{steps.task_id}")
    table = page[page.index('id="steps"') :]
    table = table[: table.index("</section>")]
    assert table.index("charge") < table.index("ship")
    assert "p-1" in table
    assert "none left" in table
    assert "(2 tries)" in table
    assert "2.0 s" in table or "2 s" in table
    assert "hunter2" not in page
    assert "<b>" not in table


def test_of_many_steps_the_last_are_shown(open_browser: Callable[..., Browser], system: System) -> None:
    steps = running(system)
    for number in range(MOST_STEPS + 10):
        value = b'"' + b"x" * 1000 + b'"'
        steps.save(f"s-{number}", encode_step(StepKind.RESULT, value, attempt=1, started_us=number + 1, ended_us=99))
    page = open_browser().text(f"/tasks/{steps.task_id}")
    assert "The first 10 of 60 steps are not shown." in page
    assert 'id="step-s-9"' not in page
    assert 'id="step-s-10"' in page
    assert len(page) < 60_000


def test_a_task_without_steps_has_no_such_section(open_browser: Callable[..., Browser], system: System) -> None:
    assert 'id="steps"' not in open_browser().text(f"/tasks/{running(system).task_id}")


def test_a_sleeping_task_says_in_which_step(open_browser: Callable[..., Browser], system: System) -> None:
    steps = running(system)
    seconds, _ = system.redis.time()
    until = (seconds + 7200) * 1_000_000
    record = encode_step(StepKind.SLEEP, b"null", attempt=1, started_us=until - 1, ended_us=until)
    steps.save("cool-down", record)
    end = ended(steps.task_id, "t", "suspended", '{"outcome":"interrupted"}', due_us=until, awaits="sleep cool-down")
    assert report(system.scripts, end) == [1]
    page = open_browser().text(f"/tasks/{steps.task_id}")
    assert "It sleeps in step cool-down; it is due in" in page
    assert "Run now" in page


def post(browser: Browser, path: str, fields: dict[str, Any]) -> Any:
    return browser.post(path, **fields)


DATA = "whole/json/"
"""The field for data without a type."""


def waiting(system: System, schema: object = None) -> DurableSteps:
    """A task that waits for an approval."""
    steps = running(system)
    seconds, _ = system.redis.time()
    until = (seconds + 7200) * 1_000_000
    record = encode_step(StepKind.WAIT, b"null", attempt=1, started_us=until - 1, ended_us=until)
    steps.save("signal:approval", with_schema(record, schema))
    end = ended(steps.task_id, "t", "suspended", '{"outcome":"interrupted"}', due_us=until, awaits="signal approval")
    assert report(system.scripts, end) == [1]
    return steps


def test_a_waiting_task_is_given_its_signal_on_its_page(open_browser: Callable[..., Browser], system: System) -> None:
    steps, browser = waiting(system), open_browser()
    path = f"/tasks/{steps.task_id}"
    page = browser.text(path)
    assert "It waits for signal approval, or the end of its time-out; it is due in" in page
    assert f'action="{path}/signals/approval"' in page
    assert "Run now" not in page
    assert 'data-confirm="Send signal approval?' in page
    for wrong in ("{", "", " "):
        assert post(browser, f"{path}/signals/approval", {DATA: wrong}).status_code == 400
    assert post(browser, f"{path}/signals/.x", {DATA: "1"}).status_code == 400
    given = {DATA: '{"password": "hunter2", "note": "yes"}'}
    assert post(browser, f"{path}/signals/approval", given).status_code == 200
    page = browser.text(path)
    assert 'id="signal"' not in page
    assert "Replace signal" in page
    assert "hunter2" not in page
    [step] = system.records.get(steps.task_id).steps
    assert (step.kind, step.value) == (StepKind.SIGNAL, {"password": "hunter2", "note": "yes"})
    assert system.records.state(steps.task_id) == "pending"
    assert post(browser, f"{path}/signals/approval", {DATA: "1"}).status_code == 409
    assert post(browser, f"{path}/signals/approval", {DATA: "1", "replace": "1"}).status_code == 200
    assert system.records.get(steps.task_id).steps[0].value == 1


def test_the_form_of_a_signal_comes_from_its_type(open_browser: Callable[..., Browser], system: System) -> None:
    schema = {
        "type": "object",
        "properties": {"approved": {"type": "boolean"}, "note": {"type": "string"}},
        "required": ["approved"],
    }
    steps, browser = waiting(system, schema), open_browser()
    path = f"/tasks/{steps.task_id}"
    assert 'name="data/json/approved"' in browser.text(path)
    answer = post(browser, f"{path}/signals/approval", {"data/json/approved": "7", "data/text/note": "well"})
    assert answer.status_code == 400
    assert "is not of type" in answer.text
    assert 'value="well"' in answer.text
    assert system.records.state(steps.task_id) == "scheduled"
    assert post(browser, f"{path}/signals/approval", {"data/json/approved": "true"}).status_code == 200
    assert system.records.get(steps.task_id).steps[0].value == {"approved": True}
