"""What open tabs cost Redis: two hundred about what one costs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Barrier, BrokenBarrierError, Thread
from typing import Any

import pytest
from redis.connection import Connection
from redis.exceptions import TimeoutError

from firmq.dashboard import cache
from firmq.dashboard.cache import READS
from firmq.shared.conditions import observation
from firmq.shared.domain.redaction import Redaction
from firmq.shared.redis.scripts import Scripts
from tests.integration.dashboard.conftest import Browser, bury
from tests.support.harness import System
from tests.support.keys import keys

TABS = 200
REFRESH = 5.0
TICK = 0.25
A_ROUND = int(REFRESH / TICK)
WINDOW = 12.0


@dataclass
class ExecutorMonitor:
    """A clock for the modules that remember: a window passes as fast as its requests are answered."""

    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> ExecutorMonitor:
    found = ExecutorMonitor()
    for module in (cache, observation):
        monkeypatch.setattr(module, "time", found)
    return found


@dataclass
class Cost:
    """How many commands a dashboard sends."""

    browser: Browser
    watch: ExecutorMonitor
    sent: list[str]

    def once(self, path: str) -> int:
        """For one page, with nothing remembered."""
        self.browser.forget()
        self.sent.clear()
        self.browser.text(path)
        return len(self.sent)

    def of_tabs(self, paths: Sequence[str]) -> int:
        """While tabs on these pages refresh themselves for a window of time."""
        self._spend(paths, REFRESH)  # the first round, when they are opened
        return self._spend(paths, WINDOW)

    def _spend(self, paths: Sequence[str], window: float) -> int:
        self.sent.clear()
        for tick in range(int(window / TICK)):
            first, last = (len(paths) * (tick % A_ROUND + n) // A_ROUND for n in (0, 1))
            for path in paths[first:last]:
                self.browser.text(path)
            self.watch.now += TICK
        return len(self.sent)


@pytest.fixture
def cost(browser: Browser, watch: ExecutorMonitor, monkeypatch: pytest.MonkeyPatch) -> Cost:
    sent: list[str] = []
    _count_commands(monkeypatch, sent)
    return Cost(browser, watch, sent)


def _count_commands(monkeypatch: pytest.MonkeyPatch, sent: list[str]) -> None:
    """Notes every command that a client sends, alone or in a pipeline."""
    send, pack = Connection.send_command, Connection.pack_commands

    def send_one(self: Connection, *command: Any, **options: Any) -> None:
        sent.append(str(command[0]))
        send(self, *command, **options)  # type: ignore[no-untyped-call]

    def pack_many(self: Connection, commands: Sequence[Any]) -> Any:
        sent.extend(str(command[0]) for command in commands)
        return pack(self, commands)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(Connection, "send_command", send_one)
    monkeypatch.setattr(Connection, "pack_commands", pack_many)


@pytest.mark.parametrize("path", ["/", "/locks", "/audit"])
def test_many_tabs_on_one_page_cost_one_read_every_two_seconds(cost: Cost, system: System, path: str) -> None:
    bury(system, ["no"])
    once = cost.once(path)
    assert 0 < cost.of_tabs([path] * TABS) <= once * WINDOW / cache.FRESH


@pytest.mark.parametrize("what", ["lists", "tasks"])
def test_many_tabs_on_other_pages_cost_no_more_than_the_budget(cost: Cost, system: System, what: str) -> None:
    ids = bury(system, ["no"] * (TABS // 2)) + system.submit_many([("noop", "null")] * (TABS // 2))
    snapshots = cost.once("/") * WINDOW / cache.FRESH
    paths = [f"/tasks/{each}" if what == "tasks" else f"/tasks?type={each}" for each in ids]
    assert 0 < cost.of_tabs(paths) <= snapshots + READS * WINDOW


def test_a_task_is_shown_as_it_was_two_seconds_ago_at_most(
    browser: Browser, watch: ExecutorMonitor, system: System
) -> None:
    [task] = bury(system, ["no"])
    assert "It failed permanently" in browser.text(f"/tasks/{task}")
    system.dead_letters.requeue(task)
    watch.now += cache.FRESH - 0.1
    assert "It failed permanently" in browser.text(f"/tasks/{task}")
    watch.now += 0.2
    assert "No worker is alive" in browser.text(f"/tasks/{task}")
    system.redis.delete(keys.rq_job(task))
    watch.now += cache.FRESH + 0.1
    assert browser.get(f"/tasks/{task}").status_code == 404


def test_large_records_are_not_kept_beyond_a_bound(
    browser: Browser, watch: ExecutorMonitor, system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "LARGEST", 50_000)
    a, b, c, d = (system.submit("noop", f'"{"x" * 20_000}"') for _ in range(4))
    small, huge = system.submit("noop"), system.submit("noop", f'"{"x" * 60_000}"')
    kept = [(a, {a}), (b, {a, b}), (c, {b, c}), (d, {c, d}), (small, {c, d, small}), (huge, set()), (small, {small})]
    entries = browser.app.extensions["page_context"].queries.cache.entries
    for task, expected in kept:
        watch.now += cache.FRESH + 1
        browser.text(f"/tasks/{task}")
        assert {key[1] for key in entries if key[0] == "task"} == expected


@pytest.mark.parametrize("what", ["", "/data.json"])
def test_one_page_of_a_large_task_is_made_at_a_time(
    browser: Browser, system: System, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    met: list[str] = []
    both = Barrier(2, action=lambda: met.append("both were made at once"))
    hide = Redaction.hide

    def meet(self: Redaction, value: object) -> object:
        with suppress(BrokenBarrierError):
            both.wait(1)
        return hide(self, value)

    monkeypatch.setattr(Redaction, "hide", meet)
    tasks = [system.submit("noop", f'"{"x" * 20_000}"') for _ in range(2)]
    pages = [Thread(target=browser.app.test_client().get, args=(f"/tasks/{task}{what}",)) for task in tasks]
    for each in pages:
        each.start()
    for each in pages:
        each.join(30)
    assert not met


def test_while_redis_is_away_it_is_asked_once_a_second(
    browser: Browser, system: System, watch: ExecutorMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = system.submit("noop")
    asked: list[str] = []

    def away(self: Scripts, name: str, *_: object) -> None:
        asked.append(name)
        raise TimeoutError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(Scripts, "call", away)
        for _ in range(5):
            for path in ("/tasks", "/", f"/tasks/{task}"):
                assert browser.get(path).status_code == 503
        assert asked == ["page"]
    assert browser.get(f"/tasks/{task}").status_code == 503
    watch.now += 1.1
    assert browser.get(f"/tasks/{task}").status_code == 200
