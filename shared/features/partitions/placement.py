"""Chooses the partition of new tasks, over HTTP and directly, by the first of these rules that applies.

A task goes to the partition of the first task that it depends on; else to the one that its placement_key prefers; else
to the one that its Idempotency-Key prefers; else to any that answers. A unique_key without a placement_key comes before
all of these, so that the same key always meets the same store. A task that depends on one in another partition is
refused.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from firmq.shared.config.settings import Settings
from firmq.shared.features.partitions.lookup import locate_all
from firmq.shared.features.partitions.preference import preferred
from firmq.shared.submission.direct import Submission
from firmq.shared.submission.submissions import Submissions as OneStore
from firmq.shared.submission.submissions import parents_in

AVOIDED, LONGEST_AVOIDED = 1.0, 8.0
"""Seconds for which a partition that did not answer gets nothing that may go elsewhere; twice as long each time."""


def name_of(task: Any, key: str | None, items: Sequence[Any] = ()) -> str | None:
    """Returns the name that decides where a task or a batch of items goes; None where a parent decides, or nothing."""
    every = [each for each in (task, *items) if isinstance(each, Mapping)]
    placement = next((found for each in every if isinstance(found := each.get("placement_key"), str)), None)
    unique = task.get("unique_key") if isinstance(task, Mapping) else None
    if placement is None and isinstance(unique, str):
        return f"unique {task.get('type')} {unique}"
    if next(parents_in(every), None):
        return None
    return key_name(key) if placement is None else f"placement {placement}"


def key_name(key: str | None) -> str | None:
    """Returns the name that determines the partition of a submission with an Idempotency-Key."""
    return None if key is None else "key " + key.strip().removeprefix('"').removesuffix('"')


class Submissions(OneStore):
    """Direct submission to all partitions, from one process."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._avoided: dict[int, tuple[float, float]] = {}
        """Until when each is avoided, and for how long that is."""

    def order(self, task_type: str, key: str | None, options: Mapping[str, Any]) -> list[Submission]:
        """Returns the partitions in which to try to store a task, best first; empty if nothing ties it to one.

        A draining partition is among them: it answers for the names that it holds, and refuses all others.
        """
        if name := name_of({**options, "type": task_type}, key):
            return [self.by_number[number] for number in preferred(name, self.by_number)]
        parent = next(parents_in([options]), None)
        return [self.of(parent)] if parent else []

    def free(self, but: Collection[Submission] = ()) -> Submission:
        """Returns a partition for a task that nothing ties: one that has answered, if there is one."""
        now = time.monotonic()
        others = [number for number, each in self.by_number.items() if each not in but] or list(self.by_number)
        well = [number for number in others if number not in self._avoided or self._avoided[number][0] <= now]
        return self.by_number[random.choice(well or others)]

    def avoid(self, submission: Submission) -> None:
        """Notes that a partition does not answer."""
        number = next(number for number, each in self.by_number.items() if each is submission)
        until, seconds = self._avoided.get(number, (0.0, 0.0))
        now = time.monotonic()
        longer = seconds * 2 if now < until + LONGEST_AVOIDED else 0.0
        seconds = min(LONGEST_AVOIDED, max(AVOIDED, longer))
        self._avoided[number] = now + seconds, seconds

    def of(self, task_id: str) -> Submission:
        """Returns the partition of a task; for an unknown one, one that may have it, as it does not answer."""
        found, lost = locate_all([task_id], {number: each.redis for number, each in self.by_number.items()})
        number = found[task_id]
        return self.by_number[[*lost, min(self.by_number)][0] if number is None else number]
