"""Which partition a worker claims from next, and how it notices that one answers again."""

from __future__ import annotations

import threading
from typing import Any

from redis.exceptions import ConnectionError

from firmq.worker.engine.link import AGE_TURN, ClaimOrder, HeartbeatsDue, StoreLink
from tests.unit.worker.fakes import FakeNotifications, FakeSession, FakeTime, claimed, link_to


def links(many: int = 3) -> list[StoreLink]:
    return [link_to(FakeSession(FakeTime()), FakeNotifications(), number) for number in range(many)]


def test_home_comes_first_and_now_and_then_where_tasks_wait_longest() -> None:
    home, second, third = links()
    third.on_claimed([claimed("a", enqueued_us=5)], 1)
    second.on_claimed([claimed("b", enqueued_us=9)], 1)
    order = ClaimOrder([home, second, third])
    first = [next(iter(order)) for _ in range(AGE_TURN)]
    assert first == [home] * (AGE_TURN - 1) + [third]


def test_a_partition_that_gave_less_than_asked_for_has_nothing_that_waits() -> None:
    [link] = links(1)
    link.on_claimed([claimed("a", enqueued_us=5)], 1)
    assert link.oldest_us == 5
    link.on_claimed([claimed("a", enqueued_us=6)], 2)
    assert link.oldest_us == 0
    assert list(ClaimOrder([link])) == [link]


def test_a_partition_that_is_away_is_asked_until_it_answers() -> None:
    [link] = links(1)
    answers, awake = iter([ConnectionError("away"), ConnectionError("away"), True]), threading.Event()
    asked_again = threading.Event()

    class Redis:
        def ping(self) -> bool:
            assert asked_again.wait(60)
            answer = next(answers)
            if isinstance(answer, Exception):
                raise answer
            return True

    class Scripts:
        redis = Redis()

    session: Any = link.session
    session.scripts = Scripts()
    link.probe(0.001, awake.set)
    link.probe(0.001, awake.set)
    asked_again.set()
    assert awake.wait(60)
    assert not link.probed
    assert next(answers, None) is None


def test_a_heartbeat_is_asked_for_in_every_partition() -> None:
    due = HeartbeatsDue()
    due.events += [threading.Event(), threading.Event()]
    due.set()
    due.events[0].clear()
    assert due.events[1].is_set(), "the first one must not clear it for the second"
