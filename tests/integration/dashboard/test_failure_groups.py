"""What counts as the same cause."""

from __future__ import annotations

import random
import string
import uuid
from collections import Counter

import pytest

from firmq.shared.domain import failure_fingerprint
from firmq.shared.domain.task import TaskState
from firmq.shared.redis.client import text
from firmq.shared.stores import maintenance
from firmq.shared.stores.failure_groups import FailureGroups
from tests.integration.dashboard.conftest import bury
from tests.support.attempt_ends import claiming
from tests.support.harness import System
from tests.support.keys import keys


@pytest.mark.parametrize(
    ("message", "pattern"),
    [
        ("order 12 not found", "order # not found"),
        ("order 4711 of 550e8400-e29b-41d4-a716-446655440000", "order # of #"),
        ("10.0.0.7:5432 refused", "# refused"),
        ("at 2026-11-21T08:45:00.123456Z it broke", "at # it broke"),
        ("task 01JBZW3V7X3F9G5Q8R2S4T6V8W is gone", "task # is gone"),
        ("object at 0x7f3a2b1c4d5e", "object at #"),
        ("deadbeefcafe is no commit", "# is no commit"),
        ("timed out after 3.25 s", "timed out after # s"),
        ("division by zero", "division by zero"),
        ("line one\n  line two", "line one line two"),
        ("", ""),
    ],
)
def test_numbers_and_ids_are_taken_out(message: str, pattern: str) -> None:
    assert failure_fingerprint.pattern(message) == pattern


def test_a_hostile_message_costs_little() -> None:
    assert len(failure_fingerprint.pattern("a-" * 1_000_000)) <= failure_fingerprint.LONGEST
    assert len(failure_fingerprint.pattern("1.2:3," * 100_000)) <= failure_fingerprint.LONGEST


def test_the_place_is_the_innermost_frame_that_is_no_librarys() -> None:
    with pytest.raises(IndexError) as caught:
        random.choice([])
    assert failure_fingerprint.place(caught.tb).endswith("test_the_place_is_the_innermost_frame_that_is_no_librarys")


def test_a_thousand_failures_of_three_causes_are_three_groups(system: System) -> None:
    number = random.Random(7)
    messages = [
        [f"order {number.randrange(10**9)} of {uuid.UUID(int=number.getrandbits(128))} is unknown" for _ in range(500)],
        [f"host-{number.randrange(99)}:{number.randrange(65536)} timed out" for _ in range(300)],
        [f"row {number.getrandbits(64):x}{number.choice(string.digits)} is locked" for _ in range(200)],
    ]
    for each in messages:
        bury(system, each)
    groups, total = FailureGroups(system.scripts).page(0, 50)
    assert total == 3
    assert [group.count for group in groups] == [500, 300, 200]
    assert [group.pattern for group in groups] == ["order # of # is unknown", "# timed out", "row # is locked"]


def test_other_types_errors_and_places_are_other_causes(system: System) -> None:
    bury(system, ["no"])
    bury(system, ["no"], task_type="echo")
    bury(system, ["no"], error="KeyError")
    bury(system, ["no"], place="shop.refund")
    assert FailureGroups(system.scripts).page(0, 50)[1] == 4


def test_when_a_cause_was_first_seen_survives_a_retry(system: System) -> None:
    ids = bury(system, ["1 bad", "2 bad"])
    [group], _ = FailureGroups(system.scripts).page(0, 50)
    for each in ids:
        system.dead_letters.requeue(each)
        system.queues.cancel(each, "so that it does not fail once more")
    assert FailureGroups(system.scripts).page(0, 50) == ([], 0)
    bury(system, ["3 bad"])
    [again], _ = FailureGroups(system.scripts).page(0, 50)
    assert (again.key, again.first_at) == (group.key, group.first_at)
    assert again.last_at > group.last_at
    assert 29 * 86_400 < int(system.redis.ttl(keys.first_seen(group.key))) <= 30 * 86_400


def test_the_index_of_causes_follows_every_way_out(system: System) -> None:
    ids = bury(system, [f"{n} bad" for n in range(10)])
    system.dead_letters.requeue(ids[0])
    system.dead_letters.purge(ids[1])
    maintenance.prune(system.scripts, "failed", 0, 3)
    [group], total = FailureGroups(system.scripts).page(0, 50)
    assert (total, group.count) == (1, 5)
    system.dead_letters.purge_many([text(each) for each in system.redis.zrange(keys.ended(TaskState.FAILED), 0, -1)])
    assert FailureGroups(system.scripts).page(0, 50) == ([], 0)
    left = [text(key) for key in system.redis.keys(f"{keys.prefix}firmq:failure-group*")]
    assert left == []


def test_a_crash_of_a_worker_is_a_cause_too(system: System) -> None:
    task = system.submit("noop")
    system.scripts.call("claim", *claiming("w", "token", 1, 1, 1 << 20, "normal", 1))
    system.scripts.call("extend", 1, task, "token", "1", "")
    system.scripts.call("reap", 10, 1)
    groups, _ = FailureGroups(system.scripts).page(0, 50)
    assert Counter(group.error for group in groups) == {"PoisonTask": 1}
