"""What several partitions have, put together."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from firmq.dashboard.merging import merged_actions, merged_groups, one_action, one_breakdown
from firmq.shared.stores.breakdown import Breakdown, Values
from firmq.shared.stores.bulk_actions import KEPT, BulkAction, Replay, Verb
from firmq.shared.stores.failure_groups import FailureGroup

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
ID = "0123456789abcdef"
ACTION = BulkAction(
    id=ID,
    verb=Verb.RETRY,
    what="all",
    by="ann",
    rate=10,
    state="running",
    total=4,
    done=2,
    passed=1,
    stopped=1,
    begun_at=NOON,
    ended_at=None,
    followed=True,
)


@pytest.mark.parametrize(
    ("states", "together"),
    [
        (["running", "paused", "aborted", "finished"], "running"),
        (["finished", "paused", "aborted"], "paused"),
        (["finished", "aborted"], "aborted"),
        (["finished", "finished"], "finished"),
    ],
)
def test_an_action_runs_while_a_part_of_it_does(states: list[str], together: str) -> None:
    ends = {"aborted": NOON + MINUTE, "finished": NOON + 2 * MINUTE}
    found = one_action([replace(ACTION, state=each, ended_at=ends.get(each)) for each in states])
    assert found.state == together
    assert found.ended_at == (None if found.open else max(ends[each] for each in states))


def test_an_action_has_the_sums_of_its_parts() -> None:
    other = replace(
        ACTION,
        rate=5,
        total=3,
        exact=False,
        begun_at=NOON - MINUTE,
        outcomes={"completed": 1},
        waiting_for={"a worker": 1},
        replays={"a": Replay(1, {"completed": 1}), "b": Replay(7, {})},
    )
    found = one_action([replace(ACTION, outcomes={"completed": 1}, replays={"a": Replay(2, {"completed": 1})}), other])
    assert (found.rate, found.total, found.done, found.passed, found.stopped) == (15, 7, 4, 2, 2)
    assert (found.exact, found.begun_at, found.waiting) == (False, NOON - MINUTE, 2)
    assert found.waiting_for == {"a worker": 1}
    assert list(found.replays.items()) == [("b", Replay(7, {})), ("a", Replay(3, {"completed": 2}))]


def test_actions_that_were_begun_as_one_are_one() -> None:
    other = replace(ACTION, id="f" * 16, begun_at=NOON + MINUTE)
    found = merged_actions([[ACTION], [other, replace(ACTION, id=f"{ID}01")], [replace(ACTION, id=f"{ID}02")]])
    assert [(each.id, each.total) for each in found] == [("f" * 16, 4), (ID, 12)]


def test_as_many_actions_are_listed_as_of_one_partition() -> None:
    parts = [[replace(ACTION, id=f"{at:08x}{part:08x}") for at in range(KEPT)] for part in range(2)]
    assert len(merged_actions(parts)) == KEPT


def test_causes_are_added_up_the_most_frequent_first() -> None:
    one = FailureGroup(
        key="a", count=2, type="t", error="E", place="", pattern="", message="old", first_at=NOON, last_at=NOON
    )
    later = replace(one, count=3, message="new", first_at=NOON + MINUTE, last_at=NOON + MINUTE)
    found = merged_groups([[one], [replace(one, key="b", count=4), later]])
    assert [(each.key, each.count) for each in found] == [("a", 5), ("b", 4)]
    assert (found[0].message, found[0].first_at, found[0].last_at) == ("new", NOON, NOON + MINUTE)


def test_tasks_without_a_field_that_others_have_are_counted() -> None:
    def part(tasks: int, **fields: Values) -> Breakdown:
        return Breakdown(tasks=tasks, complete=True, tags=Values(Counter(x=1)), fields=fields)

    found = one_breakdown([part(3, to=Values(Counter(ann=2), 1)), part(4, by=Values(Counter(bob=4)))])
    assert (found.tasks, found.tags.counts) == (7, {"x": 2})
    assert {name: (each.counts, each.missing) for name, each in found.fields.items()} == {
        "to": ({"ann": 2}, 5),
        "by": ({"bob": 4}, 3),
    }
