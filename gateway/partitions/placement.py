"""Chooses the partition of what is submitted over HTTP; the rules are in `shared/submission/placement.py`.

What nothing ties goes to the emptier one of two that answer. A partition that is away or draining gets nothing new that
nothing ties to it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from firmq.shared.domain.partition import preferred
from firmq.shared.submission import refusals
from firmq.shared.submission.placement import name_of, parents_in

if TYPE_CHECKING:
    from firmq.gateway.partitions.members import Member


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

    def of_task(self, body: Any, key: str | None) -> Member | None:
        """Returns the partition to which a task is tied; None where nothing ties it."""
        return self._of_name_or_parent([body], self.name(body, key))

    def of_batch(self, body: Any, key: str | None) -> Member | None:
        """Returns the same for all tasks of a request. Raises Refusal (422)."""
        source, tasks = _field(body, "from"), _field(body, "tasks")
        if isinstance(source, dict):
            return self._of_source(source)
        return self._of_name_or_parent(tasks if isinstance(tasks, list) else [], self.name(body, key))

    def name(self, body: Any, key: str | None) -> str | None:
        """Returns the name that decides where a request goes; None where a parent decides, or nothing."""
        tasks = _field(body, "tasks")
        return name_of(body, key, tasks if isinstance(tasks, list) else ())

    def home(self, name: str) -> Member:
        """Returns the partition that a name prefers."""
        return self.members[preferred(name, self.members)[0]]

    def open_home(self, name: str) -> Member:
        """Returns the partition that a name prefers among those that are not draining."""
        order = [self.members[number] for number in preferred(name, self.members)]
        return next((each for each in order if not each.is_draining), order[0])

    def candidates(self) -> list[Member]:
        """Returns where to try to place a task that nothing ties, the best first."""
        members = list(self.members.values())
        open_ones = [each for each in members if each.takes_new]
        if not open_ones:
            return [next((each for each in members if each.answers), members[0])]  # its answer says what to do
        pair = sorted(self.choose(open_ones, min(2, len(open_ones))), key=lambda each: each.stored)
        return [*pair, *(each for each in open_ones if each not in pair)]

    def _of_source(self, source: Mapping[str, Any]) -> Member:
        batch = source.get("batch_id") or source.get("batch")
        if not isinstance(batch, str):
            text = "needs `batch_id`: a batch is in one partition, and a filter finds tasks in all of them"
            raise refusals.invalid([refusals.field_error(("from",), text)])
        return self.locate([batch])[batch]

    def _of_name_or_parent(self, tasks: Iterable[Any], name: str | None) -> Member | None:
        if name is not None:
            return self.home(name)
        parent = next(parents_in(tasks), None)
        return self.locate([parent])[parent] if parent else None


def _field(body: Any, name: str) -> Any:
    return body.get(name) if isinstance(body, dict) else None
