"""Chooses the partition of an HTTP submission; the rules are in `shared/features/partitions/placement.py`.

A task that nothing ties to a partition goes to the less loaded of two that are reachable and not draining.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from firmq.shared.features.partitions.placement import name_of
from firmq.shared.features.partitions.preference import preferred
from firmq.shared.submission import refusals
from firmq.shared.submission.submissions import parents_in

if TYPE_CHECKING:
    from firmq.gateway.features.partitions.members import Member


class Placement:
    """The rules, for these partitions."""

    def __init__(
        self,
        members: Mapping[int, Member],
        locate: Callable[[Iterable[str]], Mapping[str, Member]],
        choose: Callable[[Sequence[Member], int], Sequence[Member]] = random.sample,
    ) -> None:
        """`locate` finds the partitions of tasks."""
        self.members = members
        self.locate = locate
        self.choose = choose

    def of_task(self, body: Any, key: str | None) -> list[Member]:
        """Returns the partitions in which to try to store a task, best first; empty if nothing ties it to one.

        A draining partition is among them: it answers for the names that it holds, and refuses all others.
        """
        tasks = _field(body, "tasks")
        items = tasks if isinstance(tasks, list) else []
        if name := name_of(body, key, items):
            return self.order(name)
        parent = next(parents_in([body, *items]), None)
        return [self.locate([parent])[parent]] if parent else []

    def of_batch(self, body: Any, key: str | None) -> list[Member]:
        """Returns the same for all tasks of a request. Raises Refusal (422)."""
        source = _field(body, "from")
        return [self._of_source(source)] if isinstance(source, dict) else self.of_task(body, key)

    def order(self, name: str) -> list[Member]:
        """Returns the partitions in the order in which a name prefers them."""
        return [self.members[number] for number in preferred(name, self.members)]

    def open_home(self, name: str) -> Member:
        """Returns the partition that a name prefers among those that are not draining."""
        order = self.order(name)
        return next((each for each in order if not each.is_draining), order[0])

    def candidates(self) -> list[Member]:
        """Returns the partitions in which to try to place an untied task, best first."""
        members = list(self.members.values())
        open_ones = [each for each in members if each.takes_new]
        if not open_ones:
            return [next((each for each in members if each.answers), members[0])]  # its error has the advice
        pair = sorted(self.choose(open_ones, min(2, len(open_ones))), key=lambda each: each.stored)
        return [*pair, *(each for each in open_ones if each not in pair)]

    def _of_source(self, source: Mapping[str, Any]) -> Member:
        batch = source.get("batch_id") or source.get("batch")
        if isinstance(batch, str):
            return self.locate([batch])[batch]
        number = source.get("partition")
        if type(number) is not int or number not in self.members:
            text = f"needs `batch_id`, or a `partition` out of {', '.join(map(str, self.members))}"
            raise refusals.invalid([refusals.field_error(("from",), text)])
        return self.members[number]


def _field(body: Any, name: str) -> Any:
    return body.get(name) if isinstance(body, dict) else None
