"""All reads of the pages.

Answers are cached for a few seconds, so that a hundred tabs on one page load Redis as much as one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial, wraps
from typing import Concatenate, ParamSpec, TypeVar

from taskqueue.dashboard.cache import FRESH, TTLCache
from taskqueue.dashboard.overview import Overview, Snapshot
from taskqueue.dashboard.stores import Stores
from taskqueue.shared.domain.task import TaskDetail, TaskState, TaskSummary
from taskqueue.shared.errors import TaskNotFound
from taskqueue.shared.stores.audit import AuditEntry
from taskqueue.shared.stores.batches import Batch, BatchItem
from taskqueue.shared.stores.bulk_actions import BulkAction, Selection
from taskqueue.shared.stores.dependencies import Relations, Relative, read_relations
from taskqueue.shared.stores.failure_groups import FailureGroup
from taskqueue.shared.stores.limits import LimitState
from taskqueue.shared.stores.locks import LockInfo
from taskqueue.shared.stores.schedules import SchedulePage, StoredSchedule
from taskqueue.shared.stores.tasks import Filter, Page, Reading

P = ParamSpec("P")
T = TypeVar("T")

PAGE = 50
LARGE = 16_384
"""Bytes of a record from which on one task is shown at a time: rendering takes 100 times its size."""
_QUICK = 0.5


def _cached(read: Callable[Concatenate[Queries, P], T]) -> Callable[Concatenate[Queries, P], T]:
    """Decorates a query so that its answers come from the cache."""

    @wraps(read)
    def ask(self: Queries, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.cache.get((read.__name__, *args, *kwargs.values()), partial(read, self, *args, **kwargs))

    return ask


class Queries:
    """The read side of the dashboard. Every method raises StoreUnavailable."""

    def __init__(self, stores: Stores, overview: Overview) -> None:
        self.stores = stores
        self.overview = overview
        self.cache = TTLCache()
        self.large = threading.Lock()

    def snapshot(self) -> Snapshot:
        """Returns the state of the system, at most two seconds old."""
        return self.cache.get("snapshot", self.overview.read, FRESH)

    @_cached
    def tasks(self, wanted: Filter, cursor: str | None) -> Page:
        """Returns a page of tasks. Raises ValueError for an invalid cursor."""
        return self.stores.tasks.page(wanted, limit=PAGE, cursor=cursor)

    @contextmanager
    def task(self, task_id: str) -> Iterator[Reading]:
        """Yields a task; a corrupt record is shown as broken. Large tasks take turns. Raises TaskNotFound."""
        with self.large if self._reading(task_id).size > LARGE else nullcontext():
            yield self._reading(task_id)

    def deliveries(self, task: TaskDetail) -> list[TaskSummary]:
        """Returns the webhook deliveries of a task, the latest first."""
        if not task.deliveries:
            return []
        return self.cache.get(("deliveries", task.summary.id), lambda: self.stores.tasks.deliveries(task))

    def relations(self, task: TaskDetail) -> Relations:
        """Returns the parents and children of a task, transitively; reads nothing if it has none."""
        summary = task.summary
        if not task.parents and not task.children:
            alone = Relative(id=summary.id, type=summary.type, state=summary.state)
            return Relations(relatives={summary.id: alone}, dependences=(), cut=False)
        return self.cache.get(("relations", summary.id), lambda: read_relations(self.stores.redis, summary.id))

    @_cached
    def batches(self, cursor: str | None) -> tuple[list[Batch], str | None]:
        """Returns a page of batches, newest first, and the next cursor. Raises ValueError for an invalid cursor."""
        return self.stores.batches.page(PAGE, cursor)

    @_cached
    def batch(self, batch_id: str) -> Batch:
        """Returns a batch. Raises BatchNotFound."""
        return self.stores.batches.get(batch_id)

    @_cached
    def batch_items(self, batch_id: str, after: int, state: TaskState | None) -> tuple[list[BatchItem], int | None]:
        """Returns a page of the tasks of a batch in their order, and the start of the next page."""
        return self.stores.batches.items(batch_id, PAGE, after, state)

    @_cached
    def failure_groups(self, page: int) -> tuple[list[FailureGroup], int]:
        """Returns a page of dead-letter groups, the largest first, and the number of groups."""
        return self.stores.failure_groups.page(page * PAGE, PAGE)

    @_cached
    def failure_group(self, key: str) -> FailureGroup | None:
        """Returns a dead-letter group; None if none of its dead letters is left."""
        return self.stores.failure_groups.get(key)

    @_cached
    def bulk_actions(self) -> tuple[list[BulkAction], list[str]]:
        """Returns the latest bulk actions, and the ids of corrupt ones."""
        return self.stores.bulk_actions.all()

    def bulk_action(self, action_id: str) -> BulkAction | None:
        """Returns a bulk action, at most half a second old, as its page shows progress; None if there is none."""
        return self.cache.get(("bulk action", action_id), lambda: self.stores.bulk_actions.get(action_id), _QUICK)

    def selected(self, selection: Selection) -> tuple[int, Sequence[TaskSummary]]:
        """Returns the number of dead letters in a selection, and the first of them."""
        if selection.ids:
            dead = [task for task in self.stores.tasks.summaries(selection.ids) if task.state is TaskState.FAILED]
            return len(dead), dead[:20]
        wanted = Filter(state=TaskState.FAILED, cause=selection.cause or None)
        return self.stores.bulk_actions.count(selection), self.stores.tasks.page(wanted, limit=20).items

    @_cached
    def locks(self) -> list[LockInfo]:
        """Returns the locks of the housekeepers, including the leader's."""
        return self.stores.locks.all()

    @_cached
    def limits(self) -> list[LimitState]:
        """Returns the limits in force."""
        return self.stores.limits.all()

    @_cached
    def schedules(self, after: str) -> SchedulePage:
        """Returns a page of schedules, by name."""
        return self.stores.schedules.page(PAGE, after)

    @_cached
    def schedule(self, name: str) -> StoredSchedule:
        """Returns a schedule. Raises ScheduleNotFound or CorruptRecord."""
        return self.stores.schedules.get(name)

    def states(self, ids: Sequence[str | None]) -> dict[str, TaskState]:
        """Returns the states of these tasks, without removed ones."""
        wanted = tuple(each for each in ids if each)
        found = self.cache.get(("states", wanted), lambda: self.stores.tasks.summaries(wanted))
        return {each.id: each.state for each in found}

    @_cached
    def audit(self, before: str | None) -> tuple[list[AuditEntry], str | None]:
        """Returns a page of the audit record, and the next cursor."""
        return self.stores.audit.page(PAGE, before)

    def _reading(self, task_id: str) -> Reading:
        def read() -> Reading:
            found = self.stores.tasks.read_many([task_id])
            if task_id not in found:
                raise TaskNotFound(id=task_id)
            return found[task_id]

        return self.cache.get(("task", task_id), read, size=lambda found: found.size)
