"""Chooses the partition of new tasks, over HTTP and directly, by the first of these rules that applies.

A task goes where the tasks are that it depends on; else where its unique_key, or its Idempotency-Key, is at home, so
that the same key always meets the same store; else to any partition that answers.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from taskqueue.shared.config.settings import Settings
from taskqueue.shared.domain.partition import preferred
from taskqueue.shared.redis.partition_lookup import locate
from taskqueue.shared.submission import refusals
from taskqueue.shared.submission.direct import Submission
from taskqueue.shared.submission.name_search import NameSearch
from taskqueue.shared.submission.refusals import Refusal

AVOIDED, LONGEST_AVOIDED = 1.0, 8.0
"""Seconds for which a partition that did not answer gets nothing that may go elsewhere; twice as long each time."""


def parents_in(tasks: Iterable[Any]) -> Iterator[str]:
    """Yields the ids of the tasks that these depend on."""
    for task in tasks:
        parents = task.get("depends_on") if isinstance(task, Mapping) else None
        for parent in parents if isinstance(parents, Sequence) and not isinstance(parents, str) else ():
            said = parent.get("task_id") if isinstance(parent, Mapping) else parent
            if isinstance(said, str):
                yield said


def home_name(task_type: Any, unique_key: Any, key: str | None) -> str | None:
    """Returns the name that decides about the partition of a task with a unique key, or with an Idempotency-Key."""
    if isinstance(unique_key, str):
        return f"unique {task_type} {unique_key}"
    return None if key is None else "key " + key.strip().removeprefix('"').removesuffix('"')


def the_only(places: Mapping[str, int]) -> int | None:
    """Returns the partition of all of these tasks; None for no tasks. Raises Refusal when there are several."""
    if len(set(places.values())) > 1:
        where = ", ".join(f"{task_id} in {number}" for task_id, number in list(places.items())[:5])
        text = f"the tasks are in different partitions ({where}): a task depends on tasks of one partition only"
        raise Refusal(refusals.NO_PARENT, text)
    return next(iter(places.values()), None)


class Submissions:
    """Direct submission to all partitions, from one process."""

    def __init__(self, settings: Settings) -> None:
        self.by_number = {number: Submission(own) for number, own in settings.partitions.items()}
        self._avoided: dict[int, tuple[float, float]] = {}
        """Until when each is avoided, and for how long that is."""

    def is_of_parent(self) -> bool:
        """Returns whether this process was forked from the one that made this."""
        return next(iter(self.by_number.values())).is_of_parent()

    def close(self) -> None:
        """Closes the idle connections."""
        for each in self.by_number.values():
            each.close()

    def search(self, task_type: str, key: str | None, options: Mapping[str, Any]) -> NameSearch | None:
        """Returns where to look for the partition of a task with a name; None for one without."""
        name = home_name(task_type, options.get("unique_key"), key)
        if name is None:
            return None
        return NameSearch(name, {number: each.scripts for number, each in self.by_number.items()})

    def tied(self, task_type: str, key: str | None, options: Mapping[str, Any]) -> Submission | None:
        """Returns the partition of a task, if something ties it to one. Raises Refusal."""
        if len(self.by_number) == 1:
            return next(iter(self.by_number.values()))
        if options and (parents := list(parents_in([options]))):
            number = the_only({parent: self._number_of(parent) for parent in parents})
            return None if number is None else self.by_number[number]
        name = home_name(task_type, options.get("unique_key"), key)
        return None if name is None else self.by_number[preferred(name, self.by_number)[0]]

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
        """Returns the partition of a task. One whose id names none is looked for."""
        return self.by_number[self._number_of(task_id)]

    def _number_of(self, task_id: str) -> int:
        first = min(self.by_number)
        if len(self.by_number) == 1:
            return first
        found = locate(task_id, {number: each.redis for number, each in self.by_number.items()})
        return first if found is None else found
