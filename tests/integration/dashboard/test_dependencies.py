"""Tasks that wait for each other, and batches, as people see them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from firmq.shared.domain.task import BatchPlace, NewTask, On, OnParentFailure, Parent, TaskState, new_task_id
from firmq.shared.stores import maintenance
from firmq.shared.stores.audit import Audit
from firmq.shared.stores.batches import Batches, BatchTerms
from tests.integration.dashboard.conftest import Browser, bury
from tests.support.harness import System
from tests.support.keys import keys


def child(system: System, *parents: str, **options: Any) -> str:
    return system.submit("noop", parents=tuple(Parent(task_id=each) for each in parents), **options)


def fill(system: System, count: int, **terms: object) -> tuple[str, list[str]]:
    """A batch of so many tasks, all sent; its id and theirs."""
    batches, batch_id = Batches(system.scripts), new_task_id()
    batches.open(batch_id, BatchTerms(**terms))  # type: ignore[arg-type]  # whatever the test says
    tasks = [
        NewTask(
            id=new_task_id(),
            type="noop",
            data="null",
            queue="normal",
            batch=BatchPlace(batch_id=batch_id, index=at),
        )
        for at in range(count)
    ]
    system.queues.submit(tasks)
    batches.close(batch_id)
    return batch_id, [task.id for task in tasks]


def explain(browser: Browser, task_id: str) -> str:
    found = re.search(r'id="why">(.*?)</p>', browser.text(f"/tasks/{task_id}"), re.DOTALL)
    assert found
    return found[1]


def test_a_blocked_task_says_what_it_waits_for(browser: Browser, system: System) -> None:
    one, two = system.submit("noop"), system.submit("noop")
    waiting = child(system, one, two)
    assert explain(browser, waiting) == f"It waits for noop {one} (pending), noop {two} (pending)."


def test_a_task_that_waits_for_a_dead_letter_says_who_can_help(browser: Browser, system: System) -> None:
    [dead] = bury(system, ["no"])
    waiting = child(system, dead, on_parent_failure=OnParentFailure.WAIT)
    assert f"It waits for fail {dead} (failed): retry or delete" in explain(browser, waiting)


def test_a_task_in_the_line_of_its_batch_says_so(browser: Browser, system: System) -> None:
    _, ids = fill(system, 3, name="import", max_running=2)
    assert explain(browser, ids[2]) == (
        "It waits for its turn: batch import has at most 2 tasks in the queues at a time (max_running)."
    )


def test_a_task_that_follows_a_batch_says_how_far_that_is(browser: Browser, system: System) -> None:
    batch_id, _ = fill(system, 3)
    follower = system.submit("noop", after_batch=batch_id)
    assert explain(browser, follower) == f"It waits for batch {batch_id}, in which 0 of 3 tasks have ended."


def test_the_tasks_around_a_task_are_drawn_and_listed(browser: Browser, system: System) -> None:
    top = system.submit("noop")
    left, right = child(system, top), system.submit("noop", parents=(Parent(task_id=top, on=On.END),))
    tip = child(system, left, right)
    for task_id in (top, left, right, tip):
        page = browser.text(f"/tasks/{task_id}")
        assert page.count('<g class="box') == 4
        assert page.count("<path") == 4
        assert page.count('class="on-end"') == 1
        assert all(f'href="/tasks/{each}"' in page for each in (top, left, right, tip))
        assert "waits for any end of" in page
    assert '<svg class="graph"' not in browser.text(f"/tasks/{system.submit('noop')}")


def test_a_large_family_is_drawn_in_part(browser: Browser, system: System) -> None:
    top = system.submit("noop")
    for _ in range(60):
        child(system, top)
    page = browser.text(f"/tasks/{top}")
    assert page.count('<g class="box') == 40
    assert "60 tasks depend on this one" in page


def test_a_batch_shows_its_progress_and_its_tasks(browser: Browser, system: System) -> None:
    batch_id, ids = fill(system, 120, name="import <of> monday")
    listed = browser.text("/batches")
    assert "import &lt;of&gt; monday" in listed
    assert f'href="/batches/{batch_id}"' in listed
    page = browser.text(f"/batches/{batch_id}")
    assert "0 of 120 tasks have ended" in page
    assert all(f'href="/tasks/{each}"' in page for each in ids[:50])
    follow = re.search(r'href="([^"]*after=49[^"]*)"', page)
    assert follow
    assert f'href="/tasks/{ids[50]}"' in browser.text(follow[1])
    system.queues.cancel(ids[7], "")
    browser.forget()
    cancelled = browser.text(f"/batches/{batch_id}?status=cancelled")
    assert cancelled.count('<tr id="row-') == 1
    assert f'href="/tasks/{ids[7]}"' in cancelled
    assert f'href="/batches/{batch_id}"' in browser.text(f"/tasks/{ids[7]}")


def test_the_bar_of_a_batch_says_how_its_tasks_ended(browser: Browser, system: System) -> None:
    Batches(system.scripts).open("batch", BatchTerms())
    for index in range(4):
        bury(system, ["no"], batch=BatchPlace(batch_id="batch", index=index))
    Batches(system.scripts).close("batch")
    for page in (browser.text("/batches"), browser.text("/batches/batch")):
        assert 's-failed">ended' in page
        [bar] = re.findall('<svg class="stack-bar".*?</svg>', page, re.DOTALL)
        assert 'aria-label="0 completed, 4 failed, of 4"' in bar
        assert re.findall('<rect class="(.*?)" x="(.*?)" y="0" width="(.*?)"', bar) == [("bad", "0", "100.0")]


def test_a_batch_can_be_cancelled_and_its_failures_retried_by_people(browser: Browser, system: System) -> None:
    batch_id, ids = fill(system, 3)
    assert "No further task of this batch starts" in browser.post(f"/batches/{batch_id}/cancel").text
    maintenance.run_deferred(system.scripts, 100)
    assert {system.records.state(each) for each in ids} == {TaskState.CANCELLED}
    assert "are being retried" in browser.post(f"/batches/{batch_id}/retry").text
    entries, _ = Audit(system.redis).page(10)
    assert [entry.what for entry in entries] == ["retried failures of batch", "cancelled batch"]


@pytest.mark.parametrize("path", ["/batches/nobody", "/batches/nobody?status=failed"])
def test_a_batch_that_is_not_there_is_a_page_too(browser: Browser, path: str) -> None:
    answer = browser.get(path)
    assert answer.status_code == 404
    assert "no such batch" in answer.text


def test_damaged_ties_break_no_page(browser: Browser, system: System) -> None:
    waiting = child(system, system.submit("noop"))
    for value in ("nonsense", "[[1]]", json.dumps([["x", "maybe"]])):
        system.redis.hset(keys.rq_job(waiting), "parents", value)
        browser.forget()
        assert "cannot be read" in browser.text(f"/tasks/{waiting}")
