"""What a row of samples says: how much it grew, and whether later is worse than earlier."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import combinations


def growth(times: Sequence[float], values: Sequence[float]) -> float:
    """By how much a row grew from its first to its last moment, by the median of the slopes between all pairs.

    That is Theil and Sen's line: a step that comes once, or a third of the samples that were taken in a bad moment, do
    not sway it, as they would the line of the least squares.
    """
    slopes = [
        (values[b] - values[a]) / (times[b] - times[a])
        for a, b in combinations(range(len(times)), 2)
        if times[a] < times[b]
    ]
    return statistics.median(slopes) * (times[-1] - times[0]) if slopes else 0.0


def thirds(times: Sequence[float], values: Sequence[float]) -> list[list[float]]:
    """The values of the first, the second and the last third of the time, whatever their order."""
    begin, end = min(times), max(times)
    found: list[list[float]] = [[], [], []]
    for at, value in zip(times, values, strict=True):
        found[min(2, int(3 * (at - begin) / ((end - begin) or 1)))].append(value)
    return found


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share does not exceed; nan of none."""
    row = sorted(values)
    return row[math.ceil(len(row) * share) - 1] if row else math.nan
