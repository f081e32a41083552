"""Describes in a sentence that all executors are busy, their task types, and when the next one is free. Pure.

Counts only executors that run one task at a time; those for handlers that wait have room for many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from firmq.shared.domain.duration import in_units
from firmq.shared.stores.workers import WorkerInfo

SHOWN = 3
"""Types that are named."""


def busy_types(workers: Sequence[WorkerInfo]) -> list[tuple[str, int]]:
    """Returns the tasks that keep all executors busy, by type, most first; nothing while one is free."""
    working = [each for each in workers if each.state not in ("silent", "draining") and each.serial_slots]
    if any(each.serial_active < each.serial_slots for each in working):
        return []
    running = (task.type for worker in working for task in worker.running if not task.concurrent)
    return Counter(running).most_common()


def busy(workers: Sequence[WorkerInfo], usual: Mapping[str, timedelta], now: datetime) -> str | None:
    """Returns the sentence; None while an executor is free. `usual` is how long tasks of a type usually run."""
    found = busy_types(workers)
    if not found:
        return None
    named = ", ".join(f"{count:,} × {kind}" for kind, count in found[:SHOWN])
    more = sum(count for _, count in found[SHOWN:])
    left = sorted(_left(workers, usual, now))
    if left:
        end = f"; the next is free in about {in_units(max(1, round(left[0])))}"
    elif any(kind in usual for kind, _ in found):
        end = "; all have run for longer than usual"
    else:
        end = ""
    return f"All executors are busy: {named}{f' and {more:,} others' if more else ''}{end}."


def _left(workers: Sequence[WorkerInfo], usual: Mapping[str, timedelta], now: datetime) -> Iterator[float]:
    """Yields the seconds that tasks have left if they run as long as usual, without those that ran for longer."""
    for worker in workers:
        since = (now - worker.last_heartbeat_at).total_seconds() if worker.last_heartbeat_at else 0.0
        for task in worker.running if worker.state != "silent" else ():
            if task.type in usual and not task.concurrent:
                left = usual[task.type].total_seconds() - task.seconds - max(0.0, since)
                if left > 0:
                    yield left
