"""How many tasks are claimed, and from which queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from firmq.worker.engine.queue_weights import Strict, WeightedRoundRobin

WEIGHTS = {"critical": 6, "high": 4, "normal": 3, "low": 1}


def round_robin(weights: Mapping[str, int]) -> WeightedRoundRobin:
    turns = WeightedRoundRobin()
    turns.set(weights)
    return turns


def dealt(turns: WeightedRoundRobin, size: int) -> dict[str, int]:
    flat = turns.quotas(size)
    return {str(flat[at]): int(flat[at + 1]) for at in range(0, len(flat), 3)}


def test_a_large_claim_is_dealt_by_weight() -> None:
    assert dealt(round_robin(WEIGHTS), 140) == {"critical": 60, "high": 40, "normal": 30, "low": 10}


def test_one_at_a_time_every_queue_has_its_turn() -> None:
    turns = round_robin(WEIGHTS)
    first: Counter[str] = Counter()
    for _ in range(140):
        [name] = [name for name, quota in dealt(turns, 1).items() if quota]
        first[name] += 1
    assert first == {"critical": 60, "high": 40, "normal": 30, "low": 10}


def test_quotas_add_up_to_what_is_wanted() -> None:
    turns = round_robin(WEIGHTS)
    assert all(sum(dealt(turns, size).values()) == size for size in range(1, 200))


def test_a_queue_that_joins_gets_its_share_and_the_others_keep_their_credit() -> None:
    turns = round_robin({"a": 1, "b": 1})
    [first] = [name for name, quota in dealt(turns, 1).items() if quota]
    turns.set({"a": 1, "b": 1, "gpu": 2})
    taken = Counter({first: 1})
    for _ in range(40):
        taken.update(dealt(turns, 1))
    assert abs(taken["a"] - taken["b"]) <= 1
    assert taken["gpu"] == 20


def test_strict_order_offers_the_whole_claim_to_each_queue_in_turn() -> None:
    strict = Strict()
    strict.set({"gpu": 1, "low": 9})
    assert strict.quotas(5) == ["gpu", 5, "", "low", 5, ""]
    assert strict.quotas(5, {"low": 2}) == ["gpu", 5, "", "low", 5, 2]
