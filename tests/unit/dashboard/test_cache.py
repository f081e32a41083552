"""The cache of the pages, by a clock that is moved by hand."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from threading import Event, Thread

import pytest

from firmq.dashboard import cache
from firmq.dashboard.cache import FRESH, MOST, OUTAGE, READS, UNUSED, TTLCache
from firmq.shared.errors import CorruptKey, StoreMisfit, StoreUnavailable


@dataclass
class Clock:
    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(cache, "time", found)
    return found


def test_an_answer_is_read_again_when_it_is_no_longer_fresh(clock: Clock) -> None:
    answers, numbers = TTLCache(), count()
    assert [answers.get("key", lambda: next(numbers)) for _ in range(3)] == [0, 0, 0]
    clock.now += FRESH + 0.1
    assert answers.get("key", lambda: next(numbers)) == 1
    clock.now += 0.6
    assert answers.get("key", lambda: next(numbers), ttl=0.5) == 2
    answers.clear()
    assert answers.get("key", lambda: next(numbers)) == 3


def test_answers_are_kept_for_longer_while_many_are_in_use(clock: Clock) -> None:
    answers, numbers = TTLCache(), count()
    keys = range(200)
    for key in keys:
        answers.get(key, lambda: next(numbers))
    clock.now += len(keys) / READS - 0.1
    assert answers.get(0, lambda: next(numbers)) == 0
    clock.now += 0.2
    assert answers.get(0, lambda: next(numbers)) == 200
    assert answers.get(1, lambda: next(numbers), ttl=FRESH) == 201


def test_concurrent_requests_share_one_read(clock: Clock) -> None:
    answers, reads, found = TTLCache(), count(), list[int]()
    begun, over = Event(), Event()

    def read() -> int:
        begun.set()
        assert over.wait(60)
        return next(reads)

    threads = [Thread(target=lambda: found.append(answers.get("key", read))) for _ in range(8)]
    for each in threads:
        each.start()
    assert begun.wait(60)
    over.set()
    for each in threads:
        each.join(60)
    assert found == [0] * 8


def test_what_is_read_while_something_changes_is_not_kept() -> None:
    answers = TTLCache()

    def read() -> int:
        answers.clear()
        return 1

    assert answers.get("key", read) == 1
    assert answers.get("key", lambda: 2) == 2


@pytest.mark.parametrize("error", [LookupError(), CorruptKey("this key only"), StoreMisfit("no right to XREVRANGE")])
def test_an_error_is_not_kept(error: Exception) -> None:
    answers = TTLCache()

    def fail() -> int:
        raise error

    with pytest.raises(type(error)):
        answers.get("key", fail)
    assert answers.get("key", lambda: 7) == 7


def test_an_outage_holds_for_a_second_for_all_that_is_not_fresh(clock: Clock) -> None:
    answers = TTLCache()
    assert answers.get("fresh", lambda: 1) == 1

    def fail() -> int:
        raise StoreUnavailable("no answer")

    for key in ("key", "other"):
        with pytest.raises(StoreUnavailable):
            answers.get(key, fail if key == "key" else lambda: 2)
    assert answers.get("fresh", fail) == 1
    clock.now += OUTAGE
    assert answers.get("other", lambda: 2) == 2


def test_the_oldest_answers_give_way(clock: Clock) -> None:
    answers = TTLCache()
    for key in range(MOST + 5):
        answers.get(key, lambda: None)
    assert list(answers.entries) == list(range(5, MOST + 5))
    clock.now += UNUSED
    answers.get("new", lambda: None)
    assert list(answers.entries) == ["new"]


def test_large_answers_give_way_to_later_ones(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "LARGEST", 50)
    answers = TTLCache()
    for key, size, kept in (("a", 20, "a"), ("b", 20, "ab"), ("c", 20, "bc"), ("d", 60, "d"), ("e", 0, "e")):
        answers.get(key, lambda: None, size=lambda _, size=size: size)  # type: ignore[misc]
        assert "".join(map(str, answers.entries)) == kept
