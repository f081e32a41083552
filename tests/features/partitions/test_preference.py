"""Which partition a name prefers."""

from __future__ import annotations

from firmq.shared.features.partitions.preference import preferred


def test_a_partition_that_is_added_takes_its_share_and_moves_nothing_else() -> None:
    names = [f"key {number}" for number in range(2000)]
    before = {name: preferred(name, range(3))[0] for name in names}
    after = {name: preferred(name, range(4))[0] for name in names}
    moved = [name for name in names if before[name] != after[name]]
    assert {after[name] for name in moved} == {3}
    assert 400 < len(moved) < 600
