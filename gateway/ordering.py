"""The order in which tasks of one request are stored: those that others depend on first."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping


def in_order(needs: Mapping[int, Collection[int]]) -> list[int]:
    """The places so that each comes behind all that it needs, else as they were; those of a circle are left out.

    What needs a place that is not among the keys is left out too, and so is what needs that.
    """
    waits = {place: len(set(needed)) for place, needed in needs.items()}
    needed_by: dict[int, list[int]] = {}
    for place, needed in needs.items():
        for each in set(needed):
            needed_by.setdefault(each, []).append(place)
    ready = deque(place for place, count in waits.items() if not count)
    order = []
    while ready:
        place = ready.popleft()
        order.append(place)
        for child in needed_by.get(place, ()):
            waits[child] -= 1
            if not waits[child]:
                ready.append(child)
    return order


def circles(left_out: Iterable[int], needs: Mapping[int, Collection[int]]) -> list[list[int]]:
    """Circles among the places that `in_order` left out: at least one in each knot of them, and no place in two.

    From every place one goes on to one that it needs, until there is none or one has been there before: that takes as
    many steps as there are places, however long the circles are.
    """
    stuck = dict.fromkeys(left_out)
    found: list[list[int]] = []
    visited: set[int] = set()
    for start in stuck:
        way: dict[int | None, int] = {}
        place: int | None = start
        while place is not None and place not in visited:
            visited.add(place)
            way[place] = len(way)
            place = next((each for each in needs[place] if each in stuck), None)
        if place in way:
            found.append([each for each in way if each is not None][way[place] :])
    return found
