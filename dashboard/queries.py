"""All reads of the pages.

Answers are cached for a few seconds, so that a hundred tabs on one page load Redis as much as one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial, wraps
from typing import Concatenate, ParamSpec, TypeVar

from firmq.dashboard.cache import FRESH, TTLCache
from firmq.dashboard.overview import Overview, Snapshot
from firmq.dashboard.stores import Stores
from firmq.shared.domain.preview import PREVIEW, preview
from firmq.shared.domain.redaction import Redaction
from firmq.shared.domain.task import TaskDetail, TaskState, TaskSummary
from firmq.shared.errors import TaskNotFound
from firmq.shared.stores.audit import AuditEntry, AuditFilter
from firmq.shared.stores.batches import Batch, BatchItem
from firmq.shared.stores.dependencies import Relations, Relative, read_relations
from firmq.shared.stores.failure_groups import FailureGroup
from firmq.shared.stores.limits import LimitState
from firmq.shared.stores.locks import LockInfo
from firmq.shared.stores.schedules import Run, SchedulePage, StoredSchedule
from firmq.shared.stores.task_types import TaskType
from firmq.shared.stores.tasks import Filter, Page, Reading, Unread
from firmq.shared.stores.workers import WorkerInfo

P = ParamSpec("P")
T = TypeVar("T")

PAGE = 50
LARGE = 16_384
"""Bytes of a record from which on one task is shown at a time: rendering takes 100 times its size."""
PREVIEWED = 4096
"""Bytes of stored data up to which a row of a list shows some of it."""
RECENT = 200
"""Tasks of a type from which its times are taken where there is no history."""
_QUICK, _SELDOM = 0.5, 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeInfo:
    """A task type: its newest version (None for an unknown type), the live workers that serve it, and its limit."""

    published: TaskType | None
    versions: int
    workers: Sequence[WorkerInfo]
    limit: LimitState | None


def _cached(read: Callable[Concatenate[Queries, P], T]) -> Callable[Concatenate[Queries, P], T]:
    """Decorates a query so that its answers come from the cache."""

    @wraps(read)
    def ask(self: Queries, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.cache.get((read.__name__, *args, *kwargs.values()), partial(read, self, *args, **kwargs))

    return ask


class Queries:
    """The read side of the dashboard. Every method raises StoreUnavailable."""

    def __init__(self, stores: Stores, overview: Overview, redaction: Redaction) -> None:
        self.stores = stores
        self.redaction = redaction
        self.overview = overview
        self.cache = TTLCache()
        self.large = threading.Lock()

    def forget(self) -> None:
        """Drops cached data, after a change."""
        self.cache.clear()

    def snapshot(self) -> Snapshot:
        """Returns the state of the system, at most two seconds old."""
        return self.cache.get("snapshot", self.overview.read, FRESH)

    @_cached
    def tasks(self, wanted: Filter, cursor: str | None) -> Page:
        """Returns a page of tasks. Raises ValueError for an invalid cursor."""
        return self.stores.all_tasks.page(wanted, limit=PAGE, cursor=cursor)

    @_cached
    def dead_letters(self, cause: str, cursor: str | None) -> Page:
        """Returns a page of the dead letters of a cause in Redis. Raises ValueError for an invalid cursor."""
        return self.stores.tasks.page(Filter(state=TaskState.FAILED, cause=cause), limit=PAGE, cursor=cursor)

    @contextmanager
    def task(self, task_id: str) -> Iterator[Reading]:
        """Yields a task; a corrupt record is shown as broken. Large tasks take turns. Raises TaskNotFound."""
        with self.large if self._reading(task_id).size > LARGE else nullcontext():
            yield self._reading(task_id)

    def relations(self, task: TaskDetail) -> Relations:
        """Returns the parents and children of a task, transitively; reads nothing if it has none."""
        summary = task.summary
        if not task.parents and not task.children:
            alone = Relative(id=summary.id, type=summary.type, state=summary.state)
            return Relations(relatives={summary.id: alone}, dependences=(), cut=False)
        return self.cache.get(("relations", summary.id), lambda: read_relations(self.stores.redis, summary.id))

    @_cached
    def type_counts(self, types: Sequence[str]) -> dict[str, int]:
        """Returns how many tasks of these types Redis has."""
        return self.stores.tasks.counts_of_types(types)

    @_cached
    def slowest(self, task_type: str, limit: int) -> Sequence[TaskSummary]:
        """Returns the tasks of a type that ran longest, of those that completed last."""
        recent = self.recent(task_type)
        found = [each for each in recent if each.state is TaskState.COMPLETED and each.ran is not None]
        return sorted(found, key=lambda each: each.ran or timedelta(0), reverse=True)[:limit]

    @_cached
    def recent(self, task_type: str) -> Sequence[TaskSummary]:
        """Returns the latest tasks of a type that Redis has."""
        return self.stores.tasks.page(Filter(type=task_type), limit=RECENT).items

    def usual_times(self, task_types: Sequence[str]) -> dict[str, timedelta]:
        """Returns how long tasks of these types usually run: the median of the last twenty that completed."""
        found = {}
        for name in task_types:
            wanted = Filter(type=name, state=TaskState.COMPLETED)
            read = partial(self.stores.tasks.page, wanted, limit=20)
            tasks = self.cache.get(("usual", name), read, _SELDOM).items
            if times := sorted(each.ran for each in tasks if each.ran is not None):
                found[name] = times[len(times) // 2]
        return found

    @_cached
    def task_type(self, name: str) -> TypeInfo:
        """Returns the data of a type, which may be unknown."""
        now = self.snapshot()
        offer = self.stores.types.find(name)
        serving = set(self.stores.types.served_by(name, [each.name for each in now.workers]))
        return TypeInfo(
            published=self.stores.types.newest(name),
            versions=len(offer.versions) if offer else 0,
            workers=[each for each in now.workers if each.name in serving],
            limit=self.stores.limits.get(f"type:{name}"),
        )

    @_cached
    def batches(self, cursor: str | None) -> tuple[list[Batch], str | None, list[str]]:
        """Returns a page of batches, newest first, the next cursor, and the cursor after each batch.

        Raises ValueError for an invalid cursor.
        """
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

    def has_queue(self, name: str) -> bool:
        """Returns whether there is a queue of this name."""
        return name in self.stores.tasks.queues

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

    @_cached
    def schedule_runs(self, names: Sequence[str]) -> dict[str, list[Run]]:
        """Returns the last runs of these schedules, the oldest first; states as last noted."""
        return dict(zip(names, self.stores.schedules.runs(names), strict=True))

    def states(self, ids: Sequence[str | None]) -> dict[str, TaskState]:
        """Returns the states of these tasks, without removed ones."""
        wanted = tuple(each for each in ids if each)
        found = self.cache.get(("states", wanted), lambda: self.stores.tasks.summaries(wanted))
        return {each.id: each.state for each in found}

    def previews(self, tasks: Sequence[TaskSummary]) -> dict[str, str]:
        """Returns a line about the data of each of these tasks, without hidden values; none where data is large."""
        shown = tasks[:PAGE]
        return self.cache.get(("previews", *(each.id for each in shown)), lambda: self._previews(shown))

    def _previews(self, tasks: Sequence[TaskSummary]) -> dict[str, str]:
        templates = {
            kind: found.schema for kind in {each.type for each in tasks} if (found := self.stores.types.newest(kind))
        }
        return {
            task.id: preview(self.redaction.emptied(data), templates.get(task.type, {}).get(PREVIEW))
            for task, data in self.stores.tasks.small_data(tasks, PREVIEWED)
            if not isinstance(data, Unread)
        }

    @_cached
    def audit(self, before: str | None, wanted: AuditFilter) -> tuple[list[AuditEntry], str | None]:
        """Returns a page of the audit record, and the next cursor."""
        return self.stores.audit.page(PAGE, before, wanted)

    def _reading(self, task_id: str) -> Reading:
        def read() -> Reading:
            found = self.stores.all_tasks.read_many([task_id])
            if task_id not in found:
                raise TaskNotFound(id=task_id)
            return found[task_id]

        return self.cache.get(("task", task_id), read, size=lambda found: found.size)
