"""All reads of the pages.

Answers are cached for a few seconds, so that a hundred tabs on one page load Redis as much as one.
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
    """The read side of the dashboard."""

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
        """Returns the snapshot of the system. Raises StoreUnavailable."""
        return self.overview_cache.look()

    def forget(self) -> None:
        """Invalidates all cached answers after a change."""
        self.overview_cache.forget()
        self.cache.clear()
        self.status_cache.forget()

    def tasks(self, wanted: Filter, cursor: str | None) -> Page:
        """Returns a page of tasks. Raises ValueError for an invalid cursor."""
        return self.cache.get(("tasks", wanted, cursor), lambda: self.records.page(wanted, limit=PAGE, cursor=cursor))

    def task(self, task_id: str) -> TaskDetail:
        """Returns a task with its whole record; a corrupt record is shown as broken.

        Raises TaskNotFound.
        """
        return self.status_cache.get(task_id).detail

    def turn(self, task_id: str) -> AbstractContextManager[object]:
        """Returns a lock to hold while rendering a task: one large task at a time, as it takes 100 times its size.

        Raises TaskNotFound.
        """
        return self.large if self.status_cache.get(task_id).size > SMALL else nullcontext()

    def deliveries(self, task: TaskDetail) -> list[TaskSummary]:
        """Returns the webhook deliveries of a task, the latest first."""
        if not task.deliveries:
            return []
        return self.cache.get(("deliveries", task.summary.id, task.deliveries), lambda: self.records.deliveries(task))

    def position(self, task: TaskSummary) -> int | None:
        """Returns the number of tasks before a pending task in its queue; None if it is in none."""
        return self.status_cache.get(task.id).position

    def relations(self, task: TaskDetail) -> Relations:
        """Returns the parents and children of a task, transitively; reads nothing if it has none."""
        summary = task.summary
        if not task.parents and not task.children:
            alone = Relative(id=summary.id, type=summary.type, state=summary.state)
            return Relations(relatives={summary.id: alone}, dependences=(), cut=False)
        return self.cache.get(("kin", summary.id), lambda: read_relations(self.redis, summary.id))

    def batches_page(self, cursor: str | None) -> tuple[list[Batch], str | None]:
        """Returns a page of batches, newest first, and the next cursor. Raises ValueError for an invalid cursor."""
        return self.cache.get(("batches", cursor), lambda: self.batches.page(PAGE, cursor))

    def batch(self, batch_id: str) -> Batch:
        """Returns a batch. Raises BatchNotFound."""
        return self.cache.get(("batch", batch_id), lambda: self.batches.get(batch_id))

    def batch_items(self, batch_id: str, after: int, state: TaskState | None) -> tuple[list[BatchItem], int | None]:
        """Returns a page of the tasks of a batch in their order, and the start of the next page."""
        return self.cache.get(
            ("batch items", batch_id, after, state), lambda: self.batches.items(batch_id, PAGE, after, state)
        )

    def groups(self, page: int) -> tuple[list[FailureGroup], int]:
        """Returns a page of dead-letter groups, the largest first, and the number of groups."""
        return self.cache.get(("groups", page), lambda: self.causes.page(page * GROUPS, GROUPS))

    def group(self, key: str) -> FailureGroup | None:
        return self.cache.get(("group", key), lambda: self.causes.get(key))

    def group_of(self, task_id: str) -> str | None:
        """Returns the fingerprint of a dead letter's group."""
        return self.status_cache.get(task_id).cause

    def dead(self, key: str, cursor: str | None) -> Page:
        """Returns a page of the dead letters of one group."""
        return self.tasks(Filter(state=TaskState.FAILED, cause=key), cursor)

    def bulk_actions(self) -> tuple[list[BulkAction], list[str]]:
        """Returns the latest bulk actions, and the ids of corrupt ones."""
        return self.cache.get(("bulk actions",), self.bulks.all)

    def bulk_action(self, action_id: str) -> BulkAction | None:
        """Returns a bulk action, cached for a second only; None if there is none."""
        return self.cache.get(("bulk action", action_id), lambda: self.bulks.get(action_id), QUICK)

    def selected(self, selection: Selection) -> tuple[int, list[TaskSummary]]:
        """Returns the number of dead letters in a selection, and the first of them."""
        if selection.ids:
            dead = [task for task in self.records.summaries(selection.ids) if task.state is TaskState.FAILED]
            return len(dead), dead[:20]
        wanted = Filter(state=TaskState.FAILED, cause=selection.cause or None)
        return self.bulks.count(selection), list(self.records.page(wanted, limit=20).items)

    def all_locks(self) -> list[LockInfo]:
        """Returns the locks of the housekeepers, including the leader's."""
        return self.cache.get(("locks",), self.locks.all)

    def limits(self) -> list[LimitState]:
        """Returns the limits in force."""
        return self.cache.get(("limits",), self.task_limits.all)

    def schedules(self, after: str) -> SchedulePage:
        """Returns a page of schedules, by name."""
        return self.cache.get(("schedules", after), lambda: self.schedule_store.page(PAGE, after))

    def schedule(self, name: str) -> StoredSchedule:
        """Returns a schedule. Raises ScheduleNotFound or CorruptRecord."""
        return self.cache.get(("schedule", name), lambda: self.schedule_store.get(name))

    def states(self, ids: Iterable[str | None]) -> dict[str, str]:
        """Returns the states of these tasks, without removed ones."""
        wanted = tuple(each for each in ids if each)
        return self.cache.get(("states", wanted), lambda: self._states(wanted))

    def _states(self, wanted: Sequence[str]) -> dict[str, str]:
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            for each in wanted:
                pipeline.hget(keys.rq_job(each), "state")
            found = without_corrupt(pipeline.execute(raise_on_error=False), None)
        return {each: text(state) for each, state in zip(wanted, found, strict=True) if isinstance(state, bytes)}

    def history(self, before: str | None) -> tuple[list[AuditEntry], str | None]:
        """Returns a page of the audit record, and the next cursor."""
        return self.cache.get(("audit", before), lambda: self.audit.page(PAGE, before))
