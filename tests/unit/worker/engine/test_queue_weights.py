"""How many tasks are claimed, and from which queue."""

from __future__ import annotations

from collections import Counter

from taskqueue.worker.engine.queue_weights import WeightedRoundRobin

WEIGHTS = {"critical": 6, "high": 4, "normal": 3, "low": 1}


def dealt(turns: WeightedRoundRobin, size: int) -> dict[str, int]:
    flat = turns.quotas(size)
    return {str(flat[at]): int(flat[at + 1]) for at in range(0, len(flat), 2)}


def test_a_large_claim_is_dealt_by_weight() -> None:
    assert dealt(WeightedRoundRobin(WEIGHTS), 140) == {"critical": 60, "high": 40, "normal": 30, "low": 10}


def test_one_at_a_time_every_queue_has_its_turn() -> None:
    turns = WeightedRoundRobin(WEIGHTS)
    first: Counter[str] = Counter()
    for _ in range(140):
        [name] = [name for name, quota in dealt(turns, 1).items() if quota]
        first[name] += 1
    assert first == {"critical": 60, "high": 40, "normal": 30, "low": 10}


def test_quotas_add_up_to_what_is_wanted() -> None:
    turns = WeightedRoundRobin(WEIGHTS)
    assert all(sum(dealt(turns, size).values()) == size for size in range(1, 200))
