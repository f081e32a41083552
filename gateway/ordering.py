"""The order in which tasks of one request are stored: those that others depend on first."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping


def in_order(needs: Mapping[int, Collection[int]]) -> list[int]:
    """The places so that each comes behind all that it needs, else as they were; those of a cycle are left out.

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


def cycle_through(place: int, needs: Mapping[int, Iterable[int]]) -> list[int]:
    """A way along the needs from a place back to itself; empty when there is none."""
    came_from: dict[int, int] = {}
    ahead = deque([place])
    while ahead:
        here = ahead.popleft()
        for each in needs.get(here, ()):
            if each == place:
                return _way(place, here, came_from)
            if each not in came_from:
                came_from[each] = here
                ahead.append(each)
    return []


def _way(start: int, end: int, came_from: Mapping[int, int]) -> list[int]:
    way = [start]
    while end != start:
        way.append(end)
        end = came_from[end]
    return [start, *reversed(way)]
