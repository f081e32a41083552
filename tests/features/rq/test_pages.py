"""Tasks of the type `rq` in the dashboard: retried with changed data, copied with a form, and copied as a command."""

from __future__ import annotations

import json
import shlex
from html import unescape

import pytest

from firmq.shared.domain.task import RQ_JOB_TYPE, WEBHOOK_TYPE, TaskState
from tests.integration.dashboard.conftest import Browser, bury
from tests.integration.dashboard.test_forms import _form
from tests.support import rq_functions as shop
from tests.support.harness import System

SHOP = shop.__name__
ADOPTING = {"RQ_QUEUES": "imports", "RQ_TASK_QUEUES": "imports,mail", "RQ_ALLOW": f"{SHOP}.*", "RQ_PICKLE": "true"}
FAIL = {"func": f"{SHOP}.fail", "args": ["no paper"]}
ADD = {"func": f"{SHOP}.add", "args": [1, 2], "queue": "imports"}
REFUSED = [
    ({**ADD, "func": "os.system"}, "data.func: does not match RQ_ALLOW"),
    ({**ADD, "queue": "other"}, "data.queue: is not one of RQ_TASK_QUEUES"),
    ({**ADD, "job_timeout": 5}, "data.job_timeout: is not an option in the data of the type rq"),
    ({**ADD, "kwargs": []}, "data.kwargs"),
    ({"args": [1]}, "data.func: is required"),
]


def test_a_failed_job_of_rq_is_retried_with_other_data_and_copied_with_its_options(
    browser: Browser, system: System
) -> None:
    system.start_housekeeper()
    system.start_worker(**ADOPTING)
    task = system.submit("rq", json.dumps(FAIL), queue="high", retry={"max_retries": 0}, tags=("night",))
    assert system.ended(task).summary.state is TaskState.FAILED
    body = command(browser, task)
    assert body == {
        "type": "rq", "data": FAIL, "queue": "high", "tags": ["night"], "retry": {"max_retries": 0},
    }  # fmt: skip
    for data, why in REFUSED:
        answer = browser.post(f"/tasks/{task}/retry-with", data=json.dumps(data))
        assert (answer.status_code, why in unescape(answer.text)) == (400, True), answer.text
    assert browser.post(f"/tasks/{task}/retry-with", data=json.dumps(ADD)).status_code == 200
    assert system.ended(task).result == 3
    form = _form(browser, f"/tasks/new?from={task}")
    assert form["data/json/queue"] == '"imports"'
    assert not any(name.startswith("rest/") for name in form), "other fields are refused"
    answer = browser.post("/tasks/submit", follow=False, **{**form, "data/json/args": "[3, 4]"})
    copy = answer.headers["Location"].rpartition("/")[2]
    assert system.ended(copy).result == 7
    found = system.records.get(copy)
    assert (dict(found.retry), found.summary.queue, found.summary.tags) == ({"max_retries": 0}, "high", ("night",))


def command(browser: Browser, task: str) -> object:
    """Returns the body that the command for a shell sends."""
    page = unescape(browser.text(f"/tasks/{task}"))
    start = page.index('data-copy="curl') + len('data-copy="')
    return json.loads(shlex.split(page[start : page.index('">Copy as curl')])[-1])


@pytest.mark.parametrize("internal", [RQ_JOB_TYPE, WEBHOOK_TYPE])
def test_no_page_offers_what_is_refused_for_an_internal_task(browser: Browser, system: System, internal: str) -> None:
    [task, ours] = [bury(system, ["it failed"], task_type=each)[0] for each in (internal, "fail")]
    for each, offered in ((task, False), (ours, True)):
        page = browser.text(f"/tasks/{each}")
        assert "<button>Retry</button>" in page
        for what in ("Edit and retry", "Run again with changes", "Copy as curl"):
            assert (what in page) == offered, what
