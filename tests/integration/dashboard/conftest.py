"""A dashboard on a real Redis, asked as a browser would ask it, and dead letters without waiting for a worker."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from types import CodeType

import pytest
from flask import Flask
from flask.testing import FlaskClient
from jinja2 import BytecodeCache
from jinja2.bccache import Bucket
from redis import Redis
from werkzeug.test import TestResponse

from firmq.dashboard.app import create_app
from firmq.dashboard.auth.users import Users
from firmq.shared.config.settings import Settings
from firmq.shared.domain import failure_fingerprint
from firmq.shared.redis.client import connect
from firmq.shared.redis.scripts import Scripts
from tests.support.attempt_ends import claiming, ended, report
from tests.support.harness import System, running_system


class CompiledTemplates(BytecodeCache):
    """Compiles each template once for all dashboards of this process: half of what most tests of pages cost."""

    def __init__(self) -> None:
        self.code: dict[str, CodeType] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self.code.get(bucket.key + bucket.checksum)

    def dump_bytecode(self, bucket: Bucket) -> None:
        if bucket.code:
            self.code[bucket.key + bucket.checksum] = bucket.code


Flask.jinja_options = {**Flask.jinja_options, "bytecode_cache": CompiledTemplates()}


@pytest.fixture
def system(redis_client: Redis, redis_url: str, tmp_path: Path) -> Iterator[System]:
    """A system without processes; a test starts what it needs."""
    with running_system(redis_client, redis_url, tmp_path) as running:
        yield running


@dataclass
class Browser:
    """A client that sends back the token of the last form it was shown."""

    app: Flask
    client: FlaskClient
    headers: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, **options: object) -> TestResponse:
        return self.client.get(path, headers=self.headers, **options)

    def text(self, path: str) -> str:
        answer = self.get(path)
        assert answer.status_code == 200, (path, answer.status, answer.text[:2000])
        return answer.text

    def token(self) -> str:
        page = self.get("/sign-in").text + self.get("/bulk").text + self.get("/queues").text
        found = re.search(r'name="csrf" value="([^"]+)"', page)
        if found:
            return unescape(found[1])
        with self.client.session_transaction() as session:
            session.setdefault("csrf", "a token of this test")
            return str(session["csrf"])

    def forget(self) -> None:
        """Lets the next page read everything anew."""
        self.app.extensions["page_context"].queries.cache.clear()

    def post(self, path: str, follow: bool = True, **form: object) -> TestResponse:
        data = {"csrf": self.token(), **form}
        return self.client.post(path, data=data, headers=self.headers, follow_redirects=follow)


@pytest.fixture
def open_browser(system: System) -> Iterator[Callable[..., Browser]]:
    """Makes a browser in front of a dashboard with these settings, which Redis knows as a part of the product."""
    as_part = connect(system.url)

    def make(**settings: object) -> Browser:
        chosen = Settings.model_validate(settings)
        app = create_app(chosen, as_part, Users.load_or_exit(chosen))
        app.testing = False
        return Browser(app, app.test_client())

    yield make
    as_part.close()


@pytest.fixture
def browser(open_browser: Callable[..., Browser]) -> Browser:
    """A dashboard as `make run` starts it."""
    return open_browser()


def bury(
    system: System,
    messages: Sequence[str],
    *,
    task_type: str = "fail",
    error: str = "ValueError",
    place: str = "shop.pay",
    data: str = '{"amount": 3}',
    **options: object,
) -> list[str]:
    """Dead letters that died with these messages, made by the scripts that a worker uses."""
    ids = system.submit_many([(task_type, data)] * len(messages), **options)  # type: ignore[arg-type]
    fail_all(system.scripts, dict(zip(ids, messages, strict=True)), error, place)
    return ids


def fail_all(scripts: Scripts, waiting: dict[str, str], error: str = "ValueError", place: str = "shop.pay") -> None:
    """Runs pending tasks as a worker does; each fails with its message."""
    while waiting:
        tasks = scripts.call("claim", *claiming("digger", "spade", 60_000_000, 200, 1 << 24, "normal", 200))[3]
        ends = []
        for task in tasks:
            message = waiting.pop(task[0].decode(), "another")
            about = {"type": error, "message": message, "place": place, "pattern": failure_fingerprint.pattern(message)}
            record = {"worker": "digger", "outcome": "failed", "error": {**about, "traceback": f"Trace\n{message}"}}
            ends.append(ended(task[0], "spade", "failed", json.dumps(record), error=json.dumps(about)))
        report(scripts, *ends, worker="digger")
        scripts.redis.delete(scripts.keys.claim("digger"))
