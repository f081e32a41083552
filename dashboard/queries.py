"""Everything that pages show. Only reads.

What several people look at is remembered for a moment, so that a hundred tabs on one page cost what one costs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext

from redis import Redis

from dashboard.cache import QUICK, TTLCache
from dashboard.overview import OverviewCache, Snapshot
from dashboard.status_cache import SMALL, StatusCache
from shared.domain.task import TaskDetail, TaskState, TaskSummary
from shared.redis import keys
from shared.redis.client import text, translated
from shared.redis.quarantine import without_corrupt
from shared.stores.audit import Audit, AuditEntry
from shared.stores.batches import Batch, Batches, BatchItem
from shared.stores.bulk_actions import BulkAction, BulkActions, Selection
from shared.stores.dependencies import Relations, Relative, read_relations
from shared.stores.failure_groups import FailureGroup, FailureGroups
from shared.stores.limits import Limits, LimitState
from shared.stores.locks import LockAdmin, LockInfo
from shared.stores.schedules import SchedulePage, ScheduleStore, StoredSchedule
from shared.stores.tasks import Filter, Page, Records

PAGE = 50
GROUPS = 50


class Queries:
    """The reading side of the dashboard."""

    def __init__(
        self,
        redis: Redis,
        overview_cache: OverviewCache,
        records: Records,
        causes: FailureGroups,
        bulks: BulkActions,
        audit: Audit,
    ) -> None:
        self.redis = redis
        self.locks = LockAdmin(records.scripts)
        self.schedule_store = ScheduleStore(records.scripts)
        self.task_limits = Limits(records.scripts)
        self.overview_cache = overview_cache
        self.records = records
        self.causes = causes
        self.bulks = bulks
        self.audit = audit
        self.batches = Batches(records.scripts)
        self.cache = TTLCache()
        self.status_cache = StatusCache(records)
        self.large = threading.Lock()

    def look(self) -> Snapshot:
        """The system at a glance."""
        return self.overview_cache.look()

    def forget(self) -> None:
        """Somebody changed something: nothing that was read before is shown again."""
        self.overview_cache.forget()
        self.cache.clear()
        self.status_cache.forget()

    def tasks(self, wanted: Filter, cursor: str | None) -> Page:
        """A page of tasks. Raises ValueError for a cursor that no page gave out."""
        return self.cache.get(("tasks", wanted, cursor), lambda: self.records.page(wanted, limit=PAGE, cursor=cursor))

    def task(self, task_id: str) -> TaskDetail:
        """A task with everything on record; one whose record is no record at all is shown as broken.

        Raises TaskNotFound.
        """
        return self.status_cache.get(task_id).detail

    def turn(self, task_id: str) -> AbstractContextManager[object]:
        """Held while a page of a task is made: one large task at a time, since that takes a hundred times its bytes.

        Raises TaskNotFound.
        """
        return self.large if self.status_cache.get(task_id).size > SMALL else nullcontext()

    def deliveries(self, task: TaskDetail) -> list[TaskSummary]:
        """What was told outside of a task's end, the latest first."""
        if not task.deliveries:
            return []
        return self.cache.get(("deliveries", task.summary.id, task.deliveries), lambda: self.records.deliveries(task))

    def position(self, task: TaskSummary) -> int | None:
        """How many tasks of its queue wait before a pending one."""
        return self.status_cache.get(task.id).position

    def relations(self, task: TaskDetail) -> Relations:
        """The tasks that it depends on and those that depend on it; most tasks have none, and cost nothing."""
        summary = task.summary
        if not task.parents and not task.children:
            alone = Relative(id=summary.id, type=summary.type, state=summary.state)
            return Relations(relatives={summary.id: alone}, dependences=(), cut=False)
        return self.cache.get(("kin", summary.id), lambda: read_relations(self.redis, summary.id))

    def batches_page(self, cursor: str | None) -> tuple[list[Batch], str | None]:
        """Some batches, newest first. Raises ValueError for a cursor that no page gave out."""
        return self.cache.get(("batches", cursor), lambda: self.batches.page(PAGE, cursor))

    def batch(self, batch_id: str) -> Batch:
        """Raises BatchNotFound."""
        return self.cache.get(("batch", batch_id), lambda: self.batches.get(batch_id))

    def batch_items(self, batch_id: str, after: int, state: TaskState | None) -> tuple[list[BatchItem], int | None]:
        """Some tasks of a batch in their order, and where the next page begins."""
        return self.cache.get(
            ("batch items", batch_id, after, state), lambda: self.batches.items(batch_id, PAGE, after, state)
        )

    def groups(self, page: int) -> tuple[list[FailureGroup], int]:
        """Causes of dead letters, the commonest first, and how many causes there are."""
        return self.cache.get(("groups", page), lambda: self.causes.page(page * GROUPS, GROUPS))

    def group(self, key: str) -> FailureGroup | None:
        return self.cache.get(("group", key), lambda: self.causes.get(key))

    def group_of(self, task_id: str) -> str | None:
        """The cause that a dead letter is filed under."""
        return self.status_cache.get(task_id).cause

    def dead(self, key: str, cursor: str | None) -> Page:
        """A page of the dead letters of one cause."""
        return self.tasks(Filter(state=TaskState.FAILED, cause=key), cursor)

    def bulk_actions(self) -> tuple[list[BulkAction], list[str]]:
        """The latest actions, and the ids of those that cannot be read."""
        return self.cache.get(("bulk actions",), self.bulks.all)

    def bulk_action(self, action_id: str) -> BulkAction | None:
        """One action; pages of it are refreshed every second."""
        return self.cache.get(("bulk action", action_id), lambda: self.bulks.get(action_id), QUICK)

    def selected(self, selection: Selection) -> tuple[int, list[TaskSummary]]:
        """How many dead letters a bulk action would touch now, and the first of them."""
        if selection.ids:
            dead = [task for task in self.records.summaries(selection.ids) if task.state is TaskState.FAILED]
            return len(dead), dead[:20]
        wanted = Filter(state=TaskState.FAILED, cause=selection.cause or None)
        return self.bulks.count(selection), list(self.records.page(wanted, limit=20).items)

    def all_locks(self) -> list[LockInfo]:
        """The locks of the housekeepers; the leader's among them."""
        return self.cache.get(("locks",), self.locks.all)

    def limits(self) -> list[LimitState]:
        """The limits in force."""
        return self.cache.get(("limits",), self.task_limits.all)

    def schedules(self, after: str) -> SchedulePage:
        """Some schedules by name."""
        return self.cache.get(("schedules", after), lambda: self.schedule_store.page(PAGE, after))

    def schedule(self, name: str) -> StoredSchedule:
        """Raises ScheduleNotFound, or CorruptRecord."""
        return self.cache.get(("schedule", name), lambda: self.schedule_store.get(name))

    def states(self, ids: Iterable[str | None]) -> dict[str, str]:
        """The states of these tasks; one that is gone is left out."""
        wanted = tuple(each for each in ids if each)
        return self.cache.get(("states", wanted), lambda: self._states(wanted))

    def _states(self, wanted: Sequence[str]) -> dict[str, str]:
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            for each in wanted:
                pipeline.hget(keys.rq_job(each), "state")
            found = without_corrupt(pipeline.execute(raise_on_error=False), None)
        return {each: text(state) for each, state in zip(wanted, found, strict=True) if isinstance(state, bytes)}

    def history(self, before: str | None) -> tuple[list[AuditEntry], str | None]:
        """Who did what."""
        return self.cache.get(("audit", before), lambda: self.audit.page(PAGE, before))
