"""How the slots and the rate of a limit are shared out among partitions.

Slots go where tasks run or wait, as evenly as that allows; what no task needs stays where it is. A rate is divided
among the partitions whose tasks wait, at most as many as its burst has whole tokens: a partition with less than one
token of burst could start nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WHOLE = 1_000_000
"""The whole rate of a limit, as the parts of it are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What a partition has of a limit, and what it needs: tasks that run, and whether more of them wait."""

    slots: int
    part: int
    running: int
    waits: bool


def slots_for(use: Mapping[int, Use], concurrency: int, turn: int) -> dict[int, int]:
    """Returns how many slots each partition should have; in all `concurrency`.

    `turn` counts up: where there are fewer slots than partitions that need one, each gets its turn.
    """
    order = _rotated(sorted(use), turn)
    wanted = {number: concurrency if use[number].waits else use[number].running for number in order}
    found = dict.fromkeys(order, 0)
    left = concurrency
    while left and (in_need := [number for number in order if found[number] < wanted[number]]):
        each = max(1, left // len(in_need))
        for number in in_need:
            more = min(each, wanted[number] - found[number], left)
            found[number] += more
            left -= more
    # Slots without a use stay where they are; slots that no partition has are spread evenly.
    for number in order:
        kept = min(left, max(0, use[number].slots - found[number]))
        found[number] += kept
        left -= kept
    for at, number in enumerate(order):
        found[number] += left // len(order) + (at < left % len(order))
    return found


def parts_for(use: Mapping[int, Use], burst: float, turn: int) -> dict[int, int]:
    """Returns which part of the rate each partition should have, in millionths."""
    in_need = [number for number in sorted(use) if use[number].waits]
    if not in_need:
        if WHOLE // 2 <= sum(each.part for each in use.values()) <= WHOLE:
            return {number: each.part for number, each in use.items()}
        in_need = sorted(use)
    most = len(in_need)
    while most > 1 and burst * (WHOLE // most) < WHOLE:
        most -= 1
    served = _rotated(in_need, turn)[:most] if len(in_need) > most else in_need
    return {number: WHOLE // len(served) if number in served else 0 for number in use}


def _rotated(numbers: Sequence[int], turn: int) -> list[int]:
    at = turn % len(numbers)
    return [*numbers[at:], *numbers[:at]]
