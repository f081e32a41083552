"""Orders the tasks of one request so that parents are stored before their children."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping


def in_order(needs: Mapping[int, Collection[int]]) -> list[int]:
    """Returns the indexes in an order in which each follows all that it needs, otherwise unchanged.

    Leaves out the members of cycles, indexes that need one that is not a key, and everything that needs these.
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
    """Returns cycles among the indexes that `in_order` left out: at least one per connected group, none overlapping.

    Follows from every index one that it needs, until there is none or it was visited before. The number of steps is the
    number of indexes, regardless of the length of the cycles.
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
