"""Chooses the partition of new tasks, over HTTP and directly, by the first of these rules that applies.

A task goes where its unique_key is at home, so that the same key always meets the same store; else where the first task
is that it depends on; else where its Idempotency-Key is at home; else to any partition that answers. Before it is
stored, the tasks that it depends on in other partitions are made known to its own one.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from firmq.shared.config.settings import Settings
from firmq.shared.domain.partition import preferred
from firmq.shared.domain.task import TASK_ID
from firmq.shared.errors import StoreUnavailable
from firmq.shared.redis.client import translated
from firmq.shared.redis.partition_lookup import locate
from firmq.shared.stores.remote_parents import RemoteParents, by_partition, look_up
from firmq.shared.submission import refusals
from firmq.shared.submission.bodies import MOST_PARENTS
from firmq.shared.submission.direct import Submission
from firmq.shared.submission.name_search import NameSearch
from firmq.shared.submission.refusals import Refusal

AVOIDED, LONGEST_AVOIDED = 1.0, 8.0
"""Seconds for which a partition that did not answer gets nothing that may go elsewhere; twice as long each time."""


def parents_in(tasks: Iterable[Any]) -> Iterator[str]:
    """Yields the ids of the tasks that these depend on; none of a task with too many of them, which is refused."""
    for task in tasks:
        parents = task.get("depends_on") if isinstance(task, Mapping) else None
        if not isinstance(parents, Sequence) or isinstance(parents, str) or len(parents) > MOST_PARENTS:
            continue
        for parent in parents:
            said = parent.get("task_id") if isinstance(parent, Mapping) else parent
            if isinstance(said, str) and TASK_ID.fullmatch(said):
                yield said


def unique_name(task_type: Any, unique_key: Any) -> str | None:
    """Returns the name that decides about the partition of a task with a unique key."""
    return f"unique {task_type} {unique_key}" if isinstance(unique_key, str) else None


def key_name(key: str | None) -> str | None:
    """Returns the name that decides about the partition of what is submitted with an Idempotency-Key."""
    return None if key is None else "key " + key.strip().removeprefix('"').removesuffix('"')


def introduce(parents: Mapping[str, int], to: int, partitions: Mapping[int, RemoteParents]) -> None:
    """Makes tasks known to the partition in which others will depend on them. Raises Refusal where one is away."""
    for number, ids in by_partition(parents).items():
        if number == to:
            continue
        try:
            look_up(ids, partitions[number], partitions[to], for_new_task=True)
        except StoreUnavailable as error:
            text = f"partition {number} or {to} does not answer, and a task in {to} depends on {ids[0]} in {number}"
            raise Refusal(refusals.STORE, text, headers={"Retry-After": "2"}) from error


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
        unique = unique_name(task_type, options.get("unique_key"))
        name = unique or (None if next(parents_in([options]), None) else key_name(key))
        if name is None:
            return None
        return NameSearch(name, {number: each.scripts for number, each in self.by_number.items()})

    def tied(self, task_type: str, key: str | None, options: Mapping[str, Any]) -> Submission | None:
        """Returns the partition of a task, if something ties it to one."""
        if len(self.by_number) == 1:
            return next(iter(self.by_number.values()))
        if unique := unique_name(task_type, options.get("unique_key")):
            return self._home(unique)
        if options and (parent := next(parents_in([options]), None)):
            return self.of(parent)
        name = key_name(key)
        return None if name is None else self._home(name)

    def _home(self, name: str) -> Submission:
        return self.by_number[preferred(name, self.by_number)[0]]

    def introduce(self, tasks: Iterable[Any], to: Submission) -> None:
        """Makes the parents of new tasks known to their partition, where they are in another one. Raises Refusal."""
        if len(self.by_number) > 1 and (parents := set(parents_in(tasks))):
            places = {parent: self._certain_number_of(parent) for parent in parents}
            partitions = {number: RemoteParents(each.scripts, number) for number, each in self.by_number.items()}
            introduce(places, next(number for number, each in self.by_number.items() if each is to), partitions)

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

    def _certain_number_of(self, task_id: str) -> int:
        """Returns the partition of a task. Raises StoreUnavailable where that may be one that does not answer."""
        found = locate(task_id, {number: each.redis for number, each in self.by_number.items()})
        if found is None:
            for each in self.by_number.values():
                with translated():
                    each.redis.ping()
        return min(self.by_number) if found is None else found

    def _number_of(self, task_id: str) -> int:
        first = min(self.by_number)
        if len(self.by_number) == 1:
            return first
        found = locate(task_id, {number: each.redis for number, each in self.by_number.items()})
        return first if found is None else found
