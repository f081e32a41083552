"""What a refused request costs: no body, no work in Redis and no memory, on every route and also with partitions."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Any

import pytest
from redis import Redis
from werkzeug.test import EnvironBuilder

from firmq.gateway.app import create_app
from firmq.shared.config.settings import Settings
from firmq.shared.redis.client import connect
from firmq.shared.stores.api_keys import Scope, new_key
from tests.support.features import rows

MOST_MEMORY = 128 << 10
BODY = b'{"rows": [], "settled": [' + b",".join([b'"a"'] * 250_000) + b"]}"
KEYS = {scope: new_key(f"{scope}-client", [scope]) for scope in Scope}
SLOW, SLOW_TEXT = new_key("slow", [Scope.ADMIN], rate="1/h")
LINES = (SLOW.line, *(key.line for key, _ in KEYS.values()))
WRONG = {"wrong key": KEYS[Scope.ADMIN][1][:-4] + "0000", "no key of ours": "x" * 30_000, "": ""}
OTHER = rows("OTHER_KEYS")
"""Unknown keys that are looked up in Redis: their name, the settings with which they are, and a text."""


class Body(io.BytesIO):
    """A body that counts what is read of it."""

    count = 0

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        self.count += len(found)
        return found


OF_FEATURES = dict(rows("GATEWAYS"))
"""Gateways of features, as functions of the address of Redis and more settings."""


@pytest.fixture(params=["one Redis", *OF_FEATURES])
def wsgi(request: pytest.FixtureRequest, redis_url: str) -> Iterator[Any]:
    about: Any = {"api_keys": LINES} | {name: value for _, more, _ in OTHER for name, value in more.items()}
    if make := OF_FEATURES.get(request.param):
        yield make(redis_url, about)
        return
    with connect(redis_url) as redis:
        yield create_app(Settings(redis_url=redis_url, **about), redis)


def routes(wsgi: Any) -> list[tuple[str, str, Scope, bool]]:
    """Every route that needs a key: method, path, scope, and whether it counts towards rates."""
    app = wsgi.members.first.app if hasattr(wsgi, "members") else wsgi
    adapter = app.url_map.bind("localhost")
    found = []
    for rule in app.url_map.iter_rules():
        values = dict.fromkeys(rule.arguments, "unknown")
        path = adapter.build(rule.endpoint, values)
        about = app.view_functions[rule.endpoint].about
        methods = sorted(rule.methods - {"OPTIONS"}) if about.scope is not None else ()
        found += [(method, path, about.scope, about.store) for method in methods]
    assert len(found) > 70
    return found


def test_a_refused_request_is_not_read_and_costs_nothing(wsgi: Any, redis_client: Redis) -> None:
    wrong = []
    door = Door(wsgi, redis_client)
    for method, path, scope, _ in routes(wsgi):
        lacking = next((text for each, (key, text) in KEYS.items() if not key.may(scope)), None)
        cases = {name: (401, text, 0) for name, text in WRONG.items()}
        cases |= {name: (401, text, 1) for name, _, text in OTHER}
        cases["key without the scope"] = (403, lacking or SLOW_TEXT, 0)
        for name, (status, text, commands) in cases.items():
            if lacking is None and status == 403:
                continue
            wrong += [f"{method} {path}, {name}: {each}" for each in door.refusal(method, path, text, status, commands)]
    assert wrong == []


def test_a_request_over_its_rate_is_not_read_and_costs_one_call(wsgi: Any, redis_client: Redis) -> None:
    door = Door(wsgi, redis_client)
    assert door.ask("GET", "/tasks", SLOW_TEXT)[0] == 200, "this takes the only token"
    wrong = []
    for method, path in [route[:2] for route in routes(wsgi) if route[3]]:
        wrong += [f"{method} {path}: {each}" for each in door.refusal(method, path, SLOW_TEXT, 429, 1)]
    assert wrong == []


class Door:
    """Asks an app and says what that cost."""

    def __init__(self, wsgi: Any, redis: Redis) -> None:
        self.wsgi = wsgi
        self.redis = redis
        self.ask("GET", "/health", KEYS[Scope.ADMIN][1])  # connects
        for _, _, text in OTHER:
            self.ask("GET", "/tasks", text)
        with redis.monitor():
            redis.ping()  # connects beside the monitor

    def measured(self, method: str, path: str, text: str) -> tuple[Any, Any, int]:
        """Asks; returns the status, what was read of the body, and the peak of memory in bytes."""
        tracemalloc.start()
        try:
            answered, read = self.ask(method, path, text)
            return answered, read, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    def refusal(self, method: str, path: str, text: str, status: int, commands: int) -> list[str]:
        """Returns what is wrong with how a request is refused: at most so many commands of Redis, and nothing read."""
        with self.redis.monitor() as monitor:
            answered, read, memory = self.measured(method, path, text)
            self.redis.echo("the end")
            said = iter(monitor.next_command, None)
            until_end = takewhile(lambda each: each["command"] != "ECHO the end", said)
            sent = [each["command"] for each in until_end if each["client_type"] != "lua"]
        # What other threads of the process allocated meanwhile is counted too, but seldom three times.
        for _ in range(2):
            memory = memory if memory <= MOST_MEMORY else self.measured(method, path, text)[2]
        wrong = [f"answered with {answered}"] if answered != status else []
        wrong += [f"sent {sent}"] if len(sent) > commands else []
        wrong += [f"read {read} bytes"] if read else []
        return wrong + ([f"took {memory} bytes"] if memory > MOST_MEMORY else [])

    def ask(self, method: str, path: str, text: str | None) -> tuple[int, int]:
        """Returns the status of a request with a large body, and how much of the body was read."""
        headers = [("Authorization", f"Bearer {text}")] if text else []
        body = Body(BODY)
        environ = EnvironBuilder(
            path=path, method=method, headers=headers, content_type="application/json"
        ).get_environ()
        environ |= {"wsgi.input": body, "CONTENT_LENGTH": str(len(BODY))}
        found: list[str] = []

        def start(status: str, headers: object, exc_info: object = None) -> Callable[[bytes], object]:
            found.append(status)
            return lambda data: None

        answer = self.wsgi(environ, start)
        b"".join(answer)
        getattr(answer, "close", lambda: None)()
        return int(found[0][:3]), body.count
