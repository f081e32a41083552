"""What people can change, what is recorded of it, and what keeps others from doing it in their name."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from datetime import timedelta
from html import unescape
from typing import Any

import pytest

from firmq.dashboard.present import as_command
from firmq.shared.domain.task import TaskState
from firmq.shared.stores.audit import Audit
from firmq.shared.stores.task_types import TaskType, TaskTypes
from tests.integration.dashboard.conftest import Browser, bury
from tests.support.attempt_ends import claiming
from tests.support.features import rows
from tests.support.harness import System
from tests.support.keys import keys


def _audit(system: System) -> list[tuple[str, str, str]]:
    entries, _ = Audit(system.redis).page(50)
    return [(entry.who, entry.what, entry.about) for entry in entries]


def test_a_dead_letter_is_retried_and_that_is_recorded(browser: Browser, system: System) -> None:
    [dead] = bury(system, ["no"])
    assert "back in its queue" in browser.post(f"/tasks/{dead}/retry").text
    assert system.records.state(dead) is TaskState.PENDING
    assert _audit(system) == [("anonymous", "retried", dead)]
    assert f'href="/tasks/{dead}"' in browser.text("/audit")


def test_a_second_retry_is_a_conflict(browser: Browser, system: System) -> None:
    [dead] = bury(system, ["no"])
    browser.post(f"/tasks/{dead}/retry")
    answer = browser.post(f"/tasks/{dead}/retry")
    assert answer.status_code == 409
    assert "only a failed task can be retried" in answer.text


def test_a_retry_with_other_data_keeps_what_was_hidden(browser: Browser, system: System) -> None:
    [dead] = bury(system, ["no"], data=json.dumps({"amount": 3, "token": "s3cret", "list": [{"password": "p"}]}))
    shown = _shown(browser, f"/tasks/{dead}")
    edited = {"amount": 4, "token": shown["token"], "list": shown["list"], "new": True}
    assert "with the new data" in browser.post(f"/tasks/{dead}/retry-with", data=json.dumps(edited)).text
    task = system.records.get(dead)
    assert task.data == {"amount": 4, "token": "s3cret", "list": [{"password": "p"}], "new": True}
    assert task.summary.state is TaskState.PENDING
    assert _audit(system) == [("anonymous", "retried with other data", dead)]


def _shown(browser: Browser, path: str) -> Any:
    """What is in the box for editing."""
    found = re.search(r"<textarea[^>]*>\n?([^<]*)</textarea>", browser.text(path))
    assert found
    return json.loads(unescape(found[1]))


USERS = [{"name": "ann", "password": "A-secret"}, {"name": "bob", "password": "B-secret"}, {"name": "eve"}]


def test_a_hidden_value_stays_with_its_record_wherever_that_is_moved(browser: Browser, system: System) -> None:
    [dead] = bury(system, ["no"], data=json.dumps({"users": USERS}))
    ann, bob, eve = _shown(browser, f"/tasks/{dead}")["users"]
    renamed = {"name": "ann", "old_password": ann["password"]}
    browser.post(f"/tasks/{dead}/retry-with", data=json.dumps({"users": [eve, bob, renamed]}))
    assert system.records.get(dead).data == {"users": [USERS[2], USERS[1], {"name": "ann", "old_password": "A-secret"}]}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda ann: {"password": "••••••"}, "not a current placeholder"),
        (lambda ann: {"password": ann["password"].replace("#1", "#9")}, "not a current placeholder"),
        (lambda ann: {"password": f"{ann['password']}!"}, "not a current placeholder"),
        (lambda ann: {"note": ann["password"]}, "users.note is not hidden"),
    ],
)
def test_actions_that_would_reveal_hidden_fields_are_refused(
    browser: Browser, system: System, change: Callable[[Any], Any], problem: str
) -> None:
    [dead] = bury(system, ["no"], data=json.dumps({"users": USERS}))
    ann = _shown(browser, f"/tasks/{dead}")["users"][0]
    answer = browser.post(f"/tasks/{dead}/retry-with", data=json.dumps({"users": [change(ann)]}))
    assert answer.status_code == 400
    assert problem in answer.text
    assert system.records.state(dead) is TaskState.FAILED
    assert system.records.get(dead).data == {"users": USERS}


@pytest.mark.parametrize("internal", ["firmq.webhook", "firmq.rq-job"])
def test_an_internal_type_is_neither_amended_nor_scheduled(browser: Browser, system: System, internal: str) -> None:
    """With data of somebody's choice a webhook would be signed as ours, and any job be run."""
    from firmq.shared.domain.schedule import Schedule
    from firmq.shared.stores.schedules import ScheduleStore

    [dead] = bury(system, ["no"], task_type=internal)
    assert "is internal" in browser.post(f"/tasks/{dead}/retry-with", data='{"url": "http://x"}').text
    assert system.records.state(dead) is TaskState.FAILED
    table = ScheduleStore(system.scripts)
    for name, task_type in (("mine", "echo"), ("forged", internal)):
        table.put(Schedule(name=name, type=task_type, queue="low", cron="0 3 * * *"))
    forged: dict[str, Any] = {"type": internal, "option/number/interval": "60", "whole/json/": "{}"}
    for path in ("/schedules/mine/edit", "/schedules/+create", "/tasks/submit"):
        assert "is internal" in browser.post(path, **forged).text
    for path in (f"/tasks/new?from={dead}", f"/tasks/new?type={internal}", f"/schedules/+new?type={internal}"):
        assert browser.get(path).status_code == 400
    assert table.get("mine").schedule.type == "echo"
    assert "is internal" in browser.post("/schedules/forged/run").text
    assert not system.records.counts()[TaskState.PENDING]


@pytest.mark.parametrize(
    ("text", "problem"),
    [("{", "this is not JSON"), ('{"amount": "x"}', "does not match the schema of"), ('{"a": NaN}', "NaN is not JSON")],
)
def test_other_data_that_cannot_be_is_refused_and_kept_in_the_form(
    browser: Browser, system: System, text: str, problem: str
) -> None:
    schema = {"type": "object", "properties": {"amount": {"type": "integer"}}}
    TaskTypes(system.redis).publish([TaskType(name="fail", schema=schema)])
    [dead] = bury(system, ["no"])
    answer = browser.post(f"/tasks/{dead}/retry-with", data=text)
    assert answer.status_code == 400
    assert problem in answer.text
    assert system.records.state(dead) is TaskState.FAILED
    assert _audit(system) == []


def test_a_task_that_waits_can_be_run_now_or_cancelled(browser: Browser, system: System) -> None:
    one, two = (system.submit("noop", delay=timedelta(hours=1)) for _ in range(2))
    browser.post(f"/tasks/{one}/run-now")
    browser.post(f"/tasks/{two}/cancel")
    assert system.records.state(one) is TaskState.PENDING
    assert system.records.state(two) is TaskState.CANCELLED
    assert browser.post(f"/tasks/{two}/run-now").status_code == 409
    assert {what for _, what, _ in _audit(system)} == {"ran now", "cancelled"}


def test_what_is_run_now_is_in_no_index_twice(browser: Browser, system: System) -> None:
    task = system.submit("noop", delay=timedelta(hours=1))
    browser.post(f"/tasks/{task}/run-now")
    assert system.redis.zcard(keys.scheduled("normal")) == 0
    assert system.redis.zcard(keys.rq_scheduled("normal")) == 0
    assert system.redis.lrange(keys.rq_queue("normal"), 0, -1) == [task.encode()]


def test_a_queue_is_paused_with_a_reason_and_resumed(browser: Browser, system: System) -> None:
    browser.post("/queues/low/pause", reason="the printer is out of paper")
    low = next(each for each in system.queues.overview() if each.name == "low")
    assert low.paused
    assert low.paused["reason"] == "the printer is out of paper"
    browser.post("/queues/low/resume")
    assert not any(each.paused for each in system.queues.overview())
    assert browser.post("/queues/none/pause", reason="x").status_code == 400


PATHS = """
/tasks/x/retry /tasks/x/retry-with /tasks/x/run-now /tasks/x/cancel /tasks/x/delete
/batches/x/cancel /batches/x/retry /queues/low/pause /queues/low/resume /types/noop/pause /types/noop/resume
/limits/set /limits/x/remove /tasks/x/restore /workers/x/drain /locks/x/unlock
/locks/step-down /schedules/x/pause /schedules/x/resume /schedules/x/run /schedules/x/edit /schedules/+create
/tasks/submit /schedules/x/delete /sign-out
"""
CHANGES = [*PATHS.split(), *rows("CHANGES")]


def test_every_change_is_in_this_table(browser: Browser) -> None:
    from werkzeug.routing import Map

    routes: Map = browser.app.url_map
    posts = {rule.endpoint for rule in routes.iter_rules() if "POST" in (rule.methods or ())}
    adapter = routes.bind("localhost")
    assert {adapter.match(path, method="POST")[0] for path in CHANGES} | {"sign_in.enter"} == posts


@pytest.mark.parametrize("path", CHANGES)
def test_a_change_requires_the_token_of_the_session(browser: Browser, system: System, path: str) -> None:
    browser.text("/queues")
    assert browser.client.post(path, data={"csrf": "guessed"}).status_code == 403
    assert browser.client.post(path).status_code == 403
    token = browser.token()
    foreign = browser.client.post(path, data={"csrf": token}, headers={"Origin": "https://evil.example"})
    assert foreign.status_code == 403
    other_site = browser.client.post(path, data={"csrf": token}, headers={"Sec-Fetch-Site": "cross-site"})
    assert other_site.status_code == 403
    assert _audit(system) == []


@pytest.mark.parametrize("origin", ["http://[", "http://[::1::1]", "null", "http://", "localhost", ""])
def test_an_origin_that_cannot_be_read_is_another_site(browser: Browser, system: System, origin: str) -> None:
    headers = {"Origin": origin}
    answer = browser.client.post("/queues/low/pause", data={"csrf": browser.token()}, headers=headers)
    assert (answer.status_code, _audit(system)) == (403, [])


@pytest.mark.parametrize("path", [*CHANGES, "/sign-in"])
def test_no_token_is_valid_before_a_form_was_shown(browser: Browser, system: System, path: str) -> None:
    for guess in ("-", "", "None"):
        assert browser.client.post(path, data={"csrf": guess}).status_code == 403
    assert _audit(system) == []


@pytest.mark.parametrize("path", [path for path in CHANGES if path not in rows("PAGES")])
def test_looking_changes_nothing(browser: Browser, path: str) -> None:
    assert browser.get(path).status_code in (404, 405)


def test_a_command_for_a_shell_cannot_break_out_of_its_quotes(browser: Browser, system: System) -> None:
    import shlex

    task = system.submit("echo", json.dumps("it's `rm -rf /` $(reboot)"))
    page = unescape(browser.text(f"/tasks/{task}"))
    start = page.index('data-copy="curl') + len('data-copy="')
    words = shlex.split(page[start : page.index('">Copy as curl')])
    assert json.loads(words[-1])["data"] == "it's `rm -rf /` $(reboot)"


@pytest.mark.parametrize(
    ("environment", "header"), [({}, []), ({"FIRMQ_API_KEY": "a key"}, ["-HAuthorization: Bearer a key"])]
)
def test_a_command_for_a_shell_sends_the_key_that_the_shell_has(environment: dict[str, str], header: list[str]) -> None:
    command = as_command("http://localhost:8000", "echo", 1, {"queue": "high"})
    said = subprocess.run(
        ["sh", "-c", f"""curl() {{ printf '%s\\n' "$@"; }}; {command}"""],
        env=environment, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    assert said[:3] == ["-X", "POST", "http://localhost:8000/tasks"]
    assert said[3:-4] == header
    assert json.loads(said[-1]) == {"type": "echo", "data": 1, "queue": "high"}


def test_a_lock_is_taken_away_with_a_reason_and_the_token_that_was_seen(browser: Browser, system: System) -> None:
    from firmq.shared.domain.lock import Lock
    from firmq.shared.stores.locks import LockAdmin, RedisLocks

    held = RedisLocks(system.scripts, "hk-1").acquire(Lock(name="ttl", at_most=timedelta(seconds=30)))
    assert held
    token = held.fencing_token.token
    assert token in browser.text("/locks")
    assert browser.post("/locks/ttl/unlock", token=token, reason=" ").status_code == 400
    assert browser.post("/locks/ttl/unlock", token="1:other", reason="it hangs").status_code == 409
    assert "its holder was hk-1" in browser.post("/locks/ttl/unlock", token=token, reason="it hangs").text
    found = LockAdmin(system.scripts).get("ttl")
    assert found
    assert not found.locked
    assert "it hangs" in browser.text("/audit")


WRONG_LIMITS = [
    ("type", "echo", "", "fast"),
    ("type", "echo", "two", ""),
    ("nonsense", "echo", "1", ""),
    ("key", "a b", "1", ""),
]


def test_a_limit_is_set_seen_and_removed(browser: Browser, system: System) -> None:
    from firmq.shared.stores.limits import Limits

    shown = browser.post("/limits/set", kind="type", name="echo", concurrency="2", rate="10/m").text
    assert "type:echo" in shown
    assert "10/m" in shown
    found = Limits(system.scripts).get("type:echo")
    assert found
    assert (found.limit.concurrency, found.source) == (2, "api")
    for kind, name, concurrency, rate in WRONG_LIMITS:
        answer = browser.post("/limits/set", kind=kind, name=name, concurrency=concurrency, rate=rate)
        assert answer.status_code in (400, 409), (kind, name, concurrency, rate)
    assert "is removed" in browser.post("/limits/type:echo/remove").text
    assert browser.post("/limits/type:echo/remove").status_code in (400, 409)
    assert "removed limit" in browser.text("/audit")


def test_tasks_that_stand_aside_are_counted_where_they_wait(browser: Browser, system: System) -> None:
    from firmq.shared.domain.limit import read_limit
    from firmq.shared.stores.limits import Limits

    Limits(system.scripts).put("type:echo", read_limit({"concurrency": 0}))
    system.submit("echo")
    system.scripts.call("claim", *claiming("w", "t", 1_000_000, 1, 1 << 20, "normal", 1))
    assert "1 throttled" in browser.text("/limits")
    assert "Of these throttled" in browser.text("/queues")


def test_the_leader_steps_down(browser: Browser, system: System) -> None:
    from firmq.shared.domain.lock import Lock
    from firmq.shared.stores.locks import LEADER, RedisLocks

    RedisLocks(system.scripts, "hk-1").acquire(Lock(name=LEADER, at_most=timedelta(seconds=30)))
    page = browser.text("/locks")
    assert "hk-1" in page
    assert page.count(">critical<") == 3
    assert "is no longer the leader" in browser.post("/locks/step-down", reason="node goes away").text
    assert browser.post("/locks/step-down", reason="again").status_code == 409


def test_a_schedule_is_paused_resumed_run_changed_and_deleted(browser: Browser, system: System) -> None:
    from firmq.shared.domain.schedule import Schedule
    from firmq.shared.stores.schedules import ScheduleStore

    table = ScheduleStore(system.scripts)
    data = json.dumps({"to": "eve", "password": "s3cret"})
    table.put(Schedule(name="nightly", type="echo", data=data, queue="low", cron="0 3 * * *"))
    assert "nightly" in browser.text("/schedules")
    assert "s3cret" not in browser.text("/schedules/nightly")
    browser.post("/schedules/nightly/pause", reason="holidays")
    assert "holidays" in browser.text("/schedules/nightly")
    browser.post("/schedules/nightly/resume")
    assert table.get("nightly").due
    browser.post("/schedules/nightly/run")
    assert system.records.counts()[TaskState.PENDING] == 1
    browser.post("/schedules/nightly/delete")
    assert browser.get("/schedules/nightly").status_code == 404
    assert [what for _, what, _ in _audit(system)] == [
        "deleted schedule",
        "ran schedule now",
        "resumed schedule",
        "paused schedule",
    ]


def test_a_worker_is_drained(browser: Browser, system: System) -> None:
    worker = system.start_worker(WORKER_EXECUTORS="2")
    [info] = system.workers.all()
    assert "is draining" in browser.post(f"/workers/{info.name}/drain").text
    assert worker.wait(40) == 0
    assert browser.post("/workers/nobody/drain").status_code == 400
