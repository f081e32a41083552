"""What open tabs cost Redis: two hundred about what one costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Barrier, BrokenBarrierError, Thread
from typing import Any

import pytest
from redis.connection import Connection
from redis.exceptions import TimeoutError

from dashboard import cache, overview, status_cache
from dashboard.cache import READS, TTLCache
from dashboard.overview import OverviewCache
from dashboard.present import Redaction
from shared.redis.scripts import Scripts
from tests.integration.dashboard.conftest import Browser, bury
from tests.support.harness import System, wait_until

TABS = 200
REFRESH = 5.0
TICK = 0.25
A_ROUND = int(REFRESH / TICK)
WINDOW = 12.0
READ_TOGETHER = WINDOW / cache.FRESH


@dataclass
class ExecutorMonitor:
    """A clock for the modules that remember: a window passes as fast as its requests are answered."""

    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> ExecutorMonitor:
    found = ExecutorMonitor()
    for module in (cache, overview, status_cache):
        monkeypatch.setattr(module, "time", found)
    return found


@pytest.fixture
def cost(browser: Browser, watch: ExecutorMonitor, monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[str]], int]:
    """How many commands the dashboard sends while tabs on these pages refresh themselves for a window of time."""
    sent: list[str] = []
    _count_commands(monkeypatch, sent)
    overview_cache: OverviewCache = browser.app.extensions["background"].overview_cache

    def spend(tabs: Sequence[str], window: float) -> int:
        sent.clear()
        for tick in range(int(window / TICK)):
            overview_cache.keep_fresh()
            first, last = (len(tabs) * (tick % A_ROUND + n) // A_ROUND for n in (0, 1))
            for path in tabs[first:last]:
                browser.text(path)
            watch.now += TICK
        return len(sent)

    def measure(tabs: Sequence[str]) -> int:
        spend(tabs, REFRESH)  # the first round, when they are opened
        return spend(tabs, WINDOW)

    return measure


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
def test_many_tabs_on_one_page_cost_what_one_costs(
    cost: Callable[[Sequence[str]], int], system: System, path: str
) -> None:
    bury(system, ["no"])
    few = cost([path])
    # One tab asks every five seconds; of many, the first that comes after two seconds asks for all.
    assert 0 < cost([path] * TABS) <= few + 2 * READ_TOGETHER


def test_many_tabs_on_other_tasks_cost_what_one_costs(cost: Callable[[Sequence[str]], int], system: System) -> None:
    ids = bury(system, ["no"] * (TABS // 2)) + system.submit_many([("noop", "null")] * (TABS // 2))
    few = cost([f"/tasks/{ids[0]}"])
    assert cost([f"/tasks/{each}" for each in ids]) <= few + READ_TOGETHER


def test_many_tabs_on_other_lists_cost_no_more_than_the_budget(
    cost: Callable[[Sequence[str]], int], system: System
) -> None:
    bury(system, ["no"])
    few = cost(["/tasks?type=t0"])
    many = cost([f"/tasks?type=t{n}" for n in range(TABS)])
    assert few < many <= few + READS * WINDOW


def test_a_task_that_somebody_watches_is_shown_as_it_is(
    browser: Browser, watch: ExecutorMonitor, system: System
) -> None:
    first, second = bury(system, ["no"] * 2)
    for each in (first, second):
        assert "It failed for good" in browser.text(f"/tasks/{each}")
    system.dead_letters.requeue(second)
    watch.now += 3
    browser.text(f"/tasks/{first}")
    watch.now += 1
    assert "No worker is alive" in browser.text(f"/tasks/{second}")
    system.dead_letters.requeue(first)
    system.queues.cancel(second, "enough")
    system.redis.delete(f"rq:job:{first}")
    watch.now += 3
    assert browser.get(f"/tasks/{first}").status_code == 404
    assert "It was cancelled" in browser.text(f"/tasks/{second}")


def test_large_records_are_not_read_for_others(browser: Browser, watch: ExecutorMonitor, system: System) -> None:
    large = system.submit("noop", f'"{"x" * 20_000}"')
    small = system.submit("noop")
    browser.text(f"/tasks/{large}")
    before = browser.app.extensions["queries"].watchlist.watched[large].read_at
    watch.now += 3
    browser.text(f"/tasks/{small}")
    assert browser.app.extensions["queries"].watchlist.watched[large].read_at == before
    browser.text(f"/tasks/{large}")
    assert browser.app.extensions["queries"].watchlist.watched[large].read_at == watch.now


def test_large_records_are_not_kept_beyond_a_bound(
    browser: Browser, watch: ExecutorMonitor, system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_cache, "KEPT", 50_000)
    a, b, c, d = (system.submit("noop", f'"{"x" * 20_000}"') for _ in range(4))
    small, huge = system.submit("noop"), system.submit("noop", f'"{"x" * 60_000}"')
    kept = [(a, {a}), (b, {a, b}), (c, {a, b, c}), (d, {b, c, d}), (small, {c, d, small}), (huge, {c, d, small, huge})]
    for task, expected in [*kept, (small, {c, d, small})]:
        watch.now += cache.FRESH + 1
        browser.text(f"/tasks/{task}")
        assert set(browser.app.extensions["queries"].watchlist.watched) == expected


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


def test_whoever_asks_the_same_at_the_same_time_gets_the_same_answer() -> None:
    asked: list[int] = []
    answers: list[object] = []
    together, found = Barrier(8), TTLCache()

    def ask() -> int:
        asked.append(1)
        together.wait(20)
        return 7

    def come() -> None:
        if len(asked) or found.answers:
            together.wait(20)
        answers.append(found.get("question", ask))

    first = Thread(target=come)
    first.start()
    wait_until(lambda: asked, "the first asked")
    others = [Thread(target=come) for _ in range(7)]
    for each in others:
        each.start()
    for each in (first, *others):
        each.join(5)
    assert answers == [7] * 8
    assert len(asked) == 1


def test_an_error_is_not_remembered() -> None:
    found = TTLCache()

    def fail() -> int:
        raise LookupError

    with pytest.raises(LookupError):
        found.get("question", fail)
    assert found.get("question", lambda: 7) == 7


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
            for path in ("/", "/tasks", f"/tasks/{task}"):
                assert browser.get(path).status_code == 503
        assert sorted(asked) == ["page", "page", "read"]
    assert browser.get(f"/tasks/{task}").status_code == 503
    watch.now += 1.1
    assert browser.get(f"/tasks/{task}").status_code == 200


def test_the_snapshot_is_not_read_when_nobody_looks(browser: Browser, watch: ExecutorMonitor) -> None:
    overview_cache: OverviewCache = browser.app.extensions["background"].overview_cache
    overview_cache.keep_fresh()
    assert overview_cache.current is None
    browser.text("/")
    watch.now += 60
    found = overview_cache.current
    overview_cache.keep_fresh()
    assert overview_cache.current is found
