"""Who is stored before whom, and who waits in a circle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from firmq.gateway.ordering import circles, in_order


def left_out(needs: dict[int, Any]) -> list[int]:
    return sorted(needs.keys() - set(in_order(needs)))


@pytest.mark.parametrize(
    ("needs", "found"),
    [
        ({0: [1], 1: [0]}, [[0, 1]]),
        ({0: [0]}, [[0]]),
        ({0: [1], 1: [2], 2: [1]}, [[1, 2]]),
        ({0: [1], 1: [0], 2: [3], 3: [2], 4: []}, [[0, 1], [2, 3]]),
        ({0: [9], 1: [0]}, []),
        ({0: [1, 2], 1: [], 2: [0]}, [[0, 2]]),
        ({0: [1], 1: [0, 2], 2: [0]}, [[0, 1]]),
    ],
    ids=["two", "oneself", "with one before it", "two of them", "none, one is missing", "a side way", "in a knot"],
)
def test_circles_are_found_and_what_hangs_on_them_is_none(needs: dict[int, Any], found: list[list[int]]) -> None:
    assert circles(left_out(needs), needs) == found


class Counted(list[int]):
    """What a task needs; counts how often somebody looks at it."""

    looked = 0

    def __iter__(self) -> Iterator[int]:
        Counted.looked += 1
        return super().__iter__()


def shape(name: str, size: int) -> dict[int, Counted]:
    """A ring, a chain whose first was refused, or chains that all lead into one ring."""
    first = {"ring": size - 1, "chain": size}.get(name, size // 2 - 1)
    needs = {at: Counted([at - 1]) for at in range(1, size)} | {0: Counted([first])}
    return needs if name != "comb" else needs | {at: Counted([at % 7]) for at in range(size // 2, size)}


@pytest.mark.parametrize("name", ["ring", "chain", "comb"])
def test_twice_as_many_take_twice_as_many_steps(name: str) -> None:
    steps = []
    for size in (1000, 2000):
        needs = shape(name, size)
        Counted.looked = 0
        rings = circles(left_out(needs), needs)
        assert sum(map(len, rings)) == {"ring": size, "chain": 0, "comb": size // 2}[name]
        steps.append(Counted.looked)
    assert steps[1] <= 2.2 * steps[0]
