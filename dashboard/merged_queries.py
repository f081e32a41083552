"""All reads of the pages that show all partitions, and the bulk actions over all of them.

The partitions are asked at the same time. What one that is away has is left out, and the page names it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from datetime import datetime
from itertools import chain, zip_longest
from typing import Any, TypeVar

from flask import g

from firmq.dashboard import merging
from firmq.dashboard.overview import Overview, Snapshot
from firmq.dashboard.queries import PAGE, Queries, Share
from firmq.dashboard.stores import Stores
from firmq.shared.domain.merged_pages import Part, merge_pages, read_cursor
from firmq.shared.domain.partition import not_answering, partition_of_id, sibling, split
from firmq.shared.domain.redaction import Redaction
from firmq.shared.domain.task import TaskState, TaskSummary
from firmq.shared.errors import BatchNotFound, StoreUnavailable
from firmq.shared.redis.client import translated
from firmq.shared.redis.partition_lookup import locate
from firmq.shared.stores.batches import Batch
from firmq.shared.stores.breakdown import Breakdown
from firmq.shared.stores.bulk_actions import BulkAction, Count, Plan, Selection
from firmq.shared.stores.failure_groups import FailureGroup
from firmq.shared.stores.selection import Source
from firmq.shared.stores.tasks import Filter, Page
from firmq.shared.submission.amending import Change

T = TypeVar("T")

PATIENCE = 3.0
"""Seconds for the answer of a partition; one that is slower counts as away until that answer is there."""
MOST_CAUSES = 500
"""Causes of each partition that the list of all has, the most frequent ones: about 3 ms of each Redis."""
THREADS = 4
"""Questions to a partition at a time, so that one that does not answer keeps no thread from the others."""
_LATE = f"no answer within {PATIENCE:.0f} s"


class MergedQueries(Queries):
    """The read side of the pages over all partitions. Every method raises StoreUnavailable when none answers."""

    def __init__(self, parts: Mapping[int, Queries], stores: Stores, overview: Overview, redaction: Redaction) -> None:
        """`parts` are the queries of the partitions; what has no place among them is read from `stores`."""
        super().__init__(stores, overview, redaction)
        self.parts = parts
        self._pools = {number: ThreadPoolExecutor(THREADS, f"partition-{number}") for number in parts}
        self._long = {number: ThreadPoolExecutor(THREADS, f"long-{number}") for number in parts}
        self._late: dict[int, Future[Any]] = {}

    def ask(
        self, read: Callable[[int], T], numbers: Sequence[int] | None = None, patience: float = PATIENCE
    ) -> tuple[dict[int, T], dict[int, StoreUnavailable]]:
        """Returns what `read` returns for each of these partitions, and why others do not answer."""
        asked, until = dict[int, Future[T]](), time.monotonic() + patience
        pools = self._pools if patience <= PATIENCE else self._long
        found, away = dict[int, T](), dict[int, StoreUnavailable]()
        for number in self.parts if numbers is None else numbers:
            if (late := self._late.get(number)) and not late.done():
                away[number] = StoreUnavailable(_LATE)
            else:
                asked[number] = pools[number].submit(copy_context().run, read, number)
        for number, answer in asked.items():
            try:
                found[number] = answer.result(max(0, until - time.monotonic()))
            except StoreUnavailable as error:
                if type(error) is not StoreUnavailable:
                    raise  # such as that the history of all of them is away
                away[number] = error
            except TimeoutError:
                away[number] = StoreUnavailable(_LATE)
                if not answer.cancel() and patience <= PATIENCE:  # it waits for Redis, not for a thread
                    self._late[number] = answer
        return found, away

    def _ask(
        self, read: Callable[[int], T], numbers: Sequence[int] | None = None, patience: float = PATIENCE
    ) -> dict[int, T]:
        """Returns the same for the partitions that answer; the page names the others."""
        found, away = self.ask(read, numbers, patience)
        g.away = {**g.get("away", {}), **{number: str(error) for number, error in away.items()}}
        if away and len(away) == len(self.parts):
            raise next(iter(away.values()))
        return found

    def _each(self, read: Callable[[Queries], T]) -> list[T]:
        return list(self._ask(lambda number: read(self.parts[number])).values())

    def forget(self) -> None:
        """Drops what was read, after a change."""
        for each in self.parts.values():
            each.forget()
        super().forget()

    def snapshot(self) -> Snapshot:
        """Returns the state of all partitions as one."""
        return merging.one_snapshot(self._each(Queries.snapshot))

    # --- tasks and batches ---

    def _page(self, read: Callable[[Queries, str | None], Part[T]], cursor: str | None) -> tuple[list[T], str | None]:
        before = read_cursor(cursor, self.parts)
        numbers = [number for number, place in before.items() if place is not None]
        pages = self._ask(lambda number: read(self.parts[number], before[number] or None), numbers)
        return merge_pages(pages, before, PAGE)

    def tasks(self, wanted: Filter, cursor: str | None) -> Page:
        """Returns a page of tasks. Raises ValueError for an invalid cursor."""
        return self._task_page(lambda part, place: part.tasks(wanted, place), cursor)

    def dead_letters(self, cause: str, cursor: str | None) -> Page:
        """Returns a page of the dead letters of a cause. Raises ValueError for an invalid cursor."""
        return self._task_page(lambda part, place: part.dead_letters(cause, place), cursor)

    def _task_page(self, read: Callable[[Queries, str | None], Page], cursor: str | None) -> Page:
        def page(part: Queries, place: str | None) -> Part[TaskSummary]:
            found = read(part, place)
            return Part(found.items, found.positions, found.next_cursor)

        items, next_cursor = self._page(page, cursor)
        return Page(items=tuple(items), next_cursor=next_cursor)

    def batches(self, cursor: str | None) -> tuple[list[Batch], str | None, list[str]]:
        """Returns a page of batches, newest first, and the next cursor. Raises ValueError for an invalid cursor."""

        def page(part: Queries, place: str | None) -> Part[Batch]:
            found, next_cursor, positions = part.batches(place)
            return Part(found, positions, next_cursor)

        return *self._page(page, cursor), []

    def states(self, ids: Sequence[str | None]) -> dict[str, TaskState]:
        """Returns the states of these tasks, without removed ones."""
        return {name: state for each in self._each(lambda part: part.states(ids)) for name, state in each.items()}

    def previews(self, tasks: Sequence[TaskSummary]) -> dict[str, str]:
        """Returns a line about the data of each of these tasks."""
        places = {each.id: partition_of_id(each.id) for each in tasks}  # None: the first one, or any other

        def read(number: int) -> dict[str, str]:
            own = [each for each in tasks if places[each.id] in (None, number)]
            return self.parts[number].previews(own) if own else {}

        return {name: line for each in self._ask(read).values() for name, line in each.items()}

    def type_counts(self, types: Sequence[str]) -> dict[str, int]:
        """Returns how many tasks of these types all partitions have."""
        return merging.summed(self._each(lambda part: part.type_counts(types)))

    def breakdown(self, source: Source, named: str | None, most: int | None = None) -> Breakdown:
        """Returns how many tasks have which content, of about `most` of each partition. Raises BatchNotFound."""

        def read(number: int) -> Breakdown | None:
            try:
                return self.parts[number].breakdown(source, named, most)
            except BatchNotFound:
                return None

        if found := [each for each in self._ask(read, patience=10 * PATIENCE).values() if each]:
            return merging.one_breakdown(found)
        raise BatchNotFound(id=source.batch_id)

    # --- dead letters ---

    def failure_groups(self, page: int, size: int = PAGE) -> tuple[list[FailureGroup], int]:
        """Returns a page of the causes of all, the largest first, and the number of causes."""
        found = self._each(lambda part: part.failure_groups(0, MOST_CAUSES))
        groups = merging.merged_groups([each for each, _ in found])
        return groups[page * size : (page + 1) * size], len(groups)

    def failure_group(self, key: str) -> FailureGroup | None:
        """Returns a cause with the dead letters of all; None if none of them is left."""
        found = [each for each in self._each(lambda part: part.failure_group(key)) if each]
        return merging.one_group(found) if found else None

    def named_groups(self, keys: Sequence[str]) -> list[FailureGroup]:
        """Returns these causes, without those of which no dead letter is left."""
        return merging.merged_groups(self._each(lambda part: part.named_groups(keys)))

    def first_seen(self, cause: str) -> datetime | None:
        """Returns when a cause was first seen, if that is known."""
        return min(filter(None, self._each(lambda part: part.first_seen(cause))), default=None)

    def replays(self, cause: str) -> list[BulkAction]:
        """Returns the bulk actions that retried dead letters of a cause, newest first."""
        return merging.merged_actions(self._each(lambda part: part.replays(cause)))

    # --- bulk actions ---

    def bulk_actions(self) -> tuple[list[BulkAction], list[str]]:
        """Returns the latest bulk actions, and the ids of corrupt ones."""
        found = self._each(Queries.bulk_actions)
        return merging.merged_actions([each for each, _ in found]), [name for _, ids in found for name in ids]

    def bulk_action(self, action_id: str) -> BulkAction | None:
        """Returns a bulk action with what it has done in all partitions; None if there is none."""
        found = [each for _, each in self.siblings(action_id)]
        return merging.one_action(found) if found else None

    def siblings(self, action_id: str) -> list[tuple[Stores, BulkAction]]:
        """Returns a bulk action in each partition that has it, with the stores there."""
        found = self._each(lambda part: part.siblings(sibling(action_id, part.stores.bulk_actions.scripts.mark)))
        return list(chain.from_iterable(found))

    def in_each(self, action_id: str, change: Callable[[Stores, str], T]) -> list[T]:
        """Changes a bulk action in every partition that answers."""
        return self._each(lambda part: change(part.stores, sibling(action_id, part.stores.bulk_actions.scripts.mark)))

    def has_queue(self, name: str) -> bool:
        """Returns whether a partition has a queue of this name."""
        return any(self._each(lambda part: part.has_queue(name)))

    def demand_all(self) -> None:
        """Raises StoreUnavailable while a partition is away."""

        def ping(number: int) -> None:
            with translated():
                self.parts[number].stores.redis.ping()

        self._all(ping, list(self.parts))

    def _all(self, read: Callable[[int], T], numbers: Iterable[int]) -> dict[int, T]:
        """Returns what each of these partitions answers. Raises StoreUnavailable if one does not."""
        found, away = self.ask(read, list(numbers), 10 * PATIENCE)
        if away:
            said = not_answering(away)
            raise StoreUnavailable(
                f"{said[0].upper()}{said[1:]}. Nothing was changed, because this needs all partitions. Try again when "
                "all answer. To begin an action on the tasks of one partition, choose it at the top of the page."
            )
        return found

    def selected(self, plan: Plan, most: int) -> tuple[Count, Sequence[TaskSummary]]:
        """Returns how many tasks a bulk action would take now, and some of them."""
        self.demand_all()
        plans = self._plans(plan)
        found = self._all(lambda number: self.parts[number].selected(plans[number], most), plans).values()
        number, exact = sum(count.number for count, _ in found), all(count.exact for count, _ in found)
        samples = [each for row in zip_longest(*(some for _, some in found)) for each in row if each]
        return Count(number, exact), samples[:most]

    def changes(self, plan: Plan) -> list[Change]:
        """Returns how a bulk action would change the data of the first of its tasks in each partition."""
        plans = self._plans(plan)
        found = self._all(lambda number: self.parts[number].changes(plans[number]), plans).values()
        return list(chain.from_iterable(found))

    def shares(self, plan: Plan, rate: int) -> list[Share]:
        """Returns what of a bulk action is to be done in which partition: as much of the rate as of the tasks."""
        self.demand_all()
        plans = self._plans(plan)
        counts = self._all(lambda number: self.parts[number].stores.bulk_actions.count(plans[number]), plans)
        weights = {number: count.number for number, count in counts.items() if count.number}
        rates = split(rate, weights)
        canaries = split(plan.canary, weights) if plan.canary else dict.fromkeys(weights, 0)
        return [
            Share(self.parts[each].stores, replace(plans[each], canary=canaries[each]), rates[each], counts[each])
            for each in weights
        ]

    def _plans(self, plan: Plan) -> dict[int, Plan]:
        """Returns the plan for each partition: selected tasks are processed by the one that has them."""
        if not plan.selection.ids:
            return dict.fromkeys(self.parts, plan)
        clients = {number: part.stores.redis for number, part in self.parts.items()}
        ids: dict[int, list[str]] = {}
        for each in plan.selection.ids:
            place = locate(each, clients)
            ids.setdefault(next(iter(clients)) if place is None else place, []).append(each)
        return {number: replace(plan, selection=Selection(ids=tuple(own))) for number, own in ids.items()}
