"""What somebody gets who can write to Redis, and read from it: disorder at most, never our processes or our doors."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from flask import Flask
from flask.sessions import SecureCookieSessionInterface
from redis import Redis
from werkzeug.security import generate_password_hash

from firmq.dashboard.auth.users import Users
from firmq.shared.domain import task_data
from firmq.shared.domain.task import TaskState
from firmq.shared.redis.client import text
from tests.integration.dashboard.conftest import Browser, open_browser, system
from tests.support.harness import System, wait_until
from tests.support.keys import keys

__all__ = ["open_browser", "system"]  # fixtures


def test_a_python_function_is_no_task_type(system: System) -> None:
    planted = [system.submit("echo", "1") for _ in range(3)]
    calls = ("os.system", "subprocess.run", "firmq.worker.main.main")
    for task_id, name in zip(planted, calls, strict=True):
        system.redis.hset(keys.rq_job(task_id), mapping={"description": name, "data": task_data.encode(name, '"id"')})
    system.start_worker()
    system.start_housekeeper()
    behind = system.submit("noop")
    assert system.ended(behind).summary.state is TaskState.COMPLETED
    wait_until(lambda: system.redis.zcard(keys.throttled("normal")) == len(planted), "they stand aside")
    for task_id in planted:
        found = system.records.get(task_id)
        assert (found.summary.state, found.summary.attempt, found.throttled_by) == (TaskState.PENDING, 0, "worker")


def test_the_cookie_secret_in_redis_grants_no_access(open_browser: Callable[..., Browser], redis_client: Redis) -> None:
    """A session also needs a mark of the password's hash, which is in the settings only."""
    hashed = generate_password_hash("correct horse", "pbkdf2:sha256:1000")
    users = Users([f"ann:admin:{hashed}"])
    browser = open_browser(dashboard_users=f"ann:admin:{hashed}")
    browser.get("/sign-in")
    secret = redis_client.get(keys.DASHBOARD_SECRET)
    assert secret
    forger = Flask("forger")
    forger.secret_key = text(secret)
    sign = SecureCookieSessionInterface().get_signing_serializer(forger)
    assert sign
    session_id = "an id that nobody drew"
    redis_client.set(keys.dashboard_session(hashlib.sha256(session_id.encode()).hexdigest()), "ann")
    for mark in ("", "0" * 16):
        cookie = sign.dumps({"name": "ann", "mark": mark, "id": session_id, "csrf": "x"})
        browser.client.set_cookie("firmq_dashboard", str(cookie))
        assert browser.client.get("/").status_code == 302
    assert users.named("ann")


def test_a_tampered_record_runs_unchanged_or_becomes_a_dead_letter(system: System) -> None:
    honest = system.submit("echo", "2")
    tampered = {field: system.submit("echo", "1") for field in ("data", "meta", "retry", "time_limit", "relations")}
    for field, task_id in tampered.items():
        system.redis.hset(keys.rq_job(task_id), field, b"\x80\x04\xff{}[]")
    system.start_worker()
    system.start_housekeeper()
    assert system.ended(honest).summary.state is TaskState.COMPLETED
    for field, task_id in tampered.items():
        assert system.ended(task_id).summary.state in (TaskState.FAILED, TaskState.COMPLETED), field
