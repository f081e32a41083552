"""Chooses the partition of new tasks, by the first of these rules that applies.

A task goes where the tasks are that it depends on; else where its unique_key, or its Idempotency-Key, is at home, so
that the same key always meets the same store; else to the emptier one of two that answer. A partition that is away gets
nothing new that nothing ties to it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from taskqueue.shared.domain.partition import preferred
from taskqueue.shared.submission import refusals
from taskqueue.shared.submission.refusals import Refusal

if TYPE_CHECKING:
    from taskqueue.gateway.partitions.members import Member


class Placement:
    """The rules, for these partitions."""

    def __init__(
        self,
        members: Mapping[int, Member],
        locate: Callable[[str], Member],
        choose: Callable[[Sequence[Member], int], Sequence[Member]] = random.sample,
    ) -> None:
        """`locate` finds the partition of a task."""
        self.members = members
        self.locate = locate
        self.choose = choose

    def of_task(self, body: Any, key: str | None) -> Member | None:
        """Returns the partition to which a task is tied; None where nothing ties it. Raises Refusal (422)."""
        if parents := self._parents([body]):
            return parents
        if unique := _text(body, "unique_key"):
            return self.home(f"unique {_text(body, 'type')} {unique}")
        return self.home(f"key {key}") if key is not None else None

    def of_batch(self, body: Any, key: str | None) -> Member | None:
        """Returns the same for all tasks of a request. Raises Refusal (422)."""
        source = body.get("from") if isinstance(body, dict) else None
        if isinstance(source, dict):
            return self._of_source(source)
        tasks = body.get("tasks") if isinstance(body, dict) else None
        if parents := self._parents(tasks if isinstance(tasks, list) else []):
            return parents
        return self.home(f"key {key}") if key is not None else None

    def home(self, name: str) -> Member:
        """Returns the partition that a name prefers."""
        return self.members[preferred(name, self.members)[0]]

    def candidates(self) -> list[Member]:
        """Returns where to try to place a task that nothing ties, the best first."""
        answering = [each for each in self.members.values() if each.answers]
        if not answering:
            return [next(iter(self.members.values()))]
        pair = sorted(self.choose(answering, min(2, len(answering))), key=lambda each: each.stored)
        return [*pair, *(each for each in answering if each not in pair)]

    def _of_source(self, source: Mapping[str, Any]) -> Member:
        batch = source.get("batch_id") or source.get("batch")
        if not isinstance(batch, str):
            text = "needs `batch_id`: a batch is in one partition, and a filter finds tasks in all of them"
            raise refusals.invalid([refusals.field_error(("from",), text)])
        return self.locate(batch)

    def _parents(self, tasks: Collection[Any]) -> Member | None:
        found = {parent: self.locate(parent) for parent in _parents_of(tasks)}
        places = {each.number for each in found.values()}
        if len(places) > 1:
            where = ", ".join(f"{parent} in {each.number}" for parent, each in list(found.items())[:5])
            text = f"the tasks are in different partitions ({where}): a task depends on tasks of one partition only"
            raise Refusal(refusals.NO_PARENT, text)
        return next(iter(found.values()), None)


def _parents_of(tasks: Collection[Any]) -> Iterator[str]:
    for task in tasks:
        parents = task.get("depends_on") if isinstance(task, dict) else None
        for parent in parents if isinstance(parents, list) else ():
            said = parent.get("task_id") if isinstance(parent, dict) else parent
            if isinstance(said, str):
                yield said


def _text(body: Any, name: str) -> str | None:
    value = body.get(name) if isinstance(body, dict) else None
    return value if isinstance(value, str) else None
