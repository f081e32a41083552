"""Everything that pages show. Only reads.

What several people look at is remembered for a moment, so that a hundred tabs on one page cost what one costs.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

from redis import Redis

from dashboard.snapshot import Lookout, Snapshot
from shared import keys
from shared.audit import Audit, AuditEntry
from shared.bulk_actions import BulkAction, BulkActions, Selection
from shared.cause_groups import CauseGroup, CauseGroups
from shared.errors import CorruptRecord, TaskNotFound
from shared.locks import LockDesk, LockInfo
from shared.records import Filter, Page, Records
from shared.redis_client import text, translated
from shared.tasks import TaskDetail, TaskState, TaskSummary
from shared.timetable import StoredSchedule, Timetable
from shared.workers import WorkerInfo

T = TypeVar("T")
PAGE = 50
GROUPS = 50
FRESH = 2.0


class Queries:
    """The reading side of the dashboard."""

    def __init__(
        self, redis: Redis, lookout: Lookout, records: Records, causes: CauseGroups, bulks: BulkActions, audit: Audit
    ) -> None:
        self.redis = redis
        self.locks = LockDesk(records.scripts)
        self.timetable = Timetable(records.scripts)
        self.lookout = lookout
        self.records = records
        self.causes = causes
        self.bulks = bulks
        self.audit = audit
        self.memory = Memory()

    def look(self) -> Snapshot:
        """The system at a glance."""
        return self.lookout.look()

    def forget(self) -> None:
        """Somebody changed something: nothing that was read before is shown again."""
        self.lookout.forget()
        self.memory.clear()

    def tasks(self, wanted: Filter, cursor: str | None) -> Page:
        """A page of tasks. Raises ValueError for a cursor that no page gave out."""
        return self.memory.recall(
            ("tasks", wanted, cursor), lambda: self.records.page(wanted, limit=PAGE, cursor=cursor)
        )

    def task(self, task_id: str) -> TaskDetail:
        """A task with everything on record; one whose record is no record at all is shown as broken.

        Raises TaskNotFound.
        """
        try:
            return self.memory.recall(("task", task_id), lambda: self.records.get(task_id))
        except CorruptRecord as error:
            return TaskDetail(summary=_broken(task_id, str(error)), data=None)

    def position(self, task: TaskSummary) -> int | None:
        """How many tasks of its queue wait before a pending one."""
        if task.state is not TaskState.PENDING:
            return None
        with translated():
            rank = self.redis.zrank(keys.pending(task.queue), task.id)
        return rank if isinstance(rank, int) else None

    def exists(self, task_id: str) -> bool:
        """Whether there is a task of this id."""
        try:
            self.task(task_id)
        except TaskNotFound:
            return False
        return True

    def groups(self, page: int) -> tuple[list[CauseGroup], int]:
        """Causes of dead letters, the commonest first, and how many causes there are."""
        return self.memory.recall(("groups", page), lambda: self.causes.page(page * GROUPS, GROUPS))

    def group(self, key: str) -> CauseGroup | None:
        return self.memory.recall(("group", key), lambda: self.causes.get(key))

    def group_of(self, task_id: str) -> str | None:
        return self.memory.recall(("group of", task_id), lambda: self.causes.cause_of(task_id))

    def dead(self, key: str, cursor: str | None) -> Page:
        """A page of the dead letters of one cause."""
        return self.tasks(Filter(state=TaskState.FAILED, cause=key), cursor)

    def bulk_actions(self) -> list[BulkAction]:
        return self.memory.recall(("bulk actions",), self.bulks.all)

    def bulk_action(self, action_id: str) -> BulkAction | None:
        return self.bulks.get(action_id)

    def selected(self, selection: Selection) -> tuple[int, list[TaskSummary]]:
        """How many dead letters a bulk action would touch now, and the first of them."""
        if selection.ids:
            found = [self.task(each).summary for each in selection.ids if self.exists(each)]
            dead = [task for task in found if task.state is TaskState.FAILED]
            return len(dead), dead[:20]
        wanted = Filter(state=TaskState.FAILED, cause=selection.cause or None)
        return self.bulks.count(selection), list(self.records.page(wanted, limit=20).items)

    def workers(self) -> list[WorkerInfo]:
        return list(self.look().workers)

    def all_locks(self) -> list[LockInfo]:
        """The locks of the housekeepers; the leader's among them."""
        return self.memory.recall(("locks",), self.locks.all)

    def schedules(self, after: str) -> tuple[list[StoredSchedule], str | None]:
        """Some schedules by name, and where the next page begins."""
        return self.memory.recall(("schedules", after), lambda: self.timetable.page(PAGE, after))

    def schedule(self, name: str) -> StoredSchedule:
        """Raises ScheduleNotFound."""
        return self.memory.recall(("schedule", name), lambda: self.timetable.get(name))

    def states(self, ids: Iterable[str | None]) -> dict[str, str]:
        """The states of these tasks; one that is gone is left out."""
        wanted = [each for each in ids if each]
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            for each in wanted:
                pipeline.hget(keys.rq_job(each), "state")
            found = pipeline.execute(raise_on_error=False)
        return {each: text(state) for each, state in zip(wanted, found, strict=True) if isinstance(state, bytes)}

    def history(self, before: str | None) -> tuple[list[AuditEntry], str | None]:
        """Who did what."""
        return self.audit.page(PAGE, before)


class Memory:
    """Remembers the latest answers for two seconds."""

    MOST = 256

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.answers: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()

    def recall(self, question: Hashable, ask: Callable[[], T]) -> T:
        """The answer, at most two seconds old."""
        with self.lock:
            known = self.answers.get(question)
        if known is not None and time.monotonic() - known[0] < FRESH:
            answer: T = known[1]
            return answer
        answer = ask()
        with self.lock:
            self.answers[question] = (time.monotonic(), answer)
            self.answers.move_to_end(question)
            while len(self.answers) > self.MOST:
                self.answers.popitem(last=False)
        return answer

    def clear(self) -> None:
        with self.lock:
            self.answers.clear()


def _broken(task_id: str, why: str) -> TaskSummary:
    return TaskSummary(
        id=task_id,
        type="?",
        state=TaskState.FAILED,
        queue="?",
        attempt=0,
        failures=0,
        crashes=0,
        created_at=None,
        corrupt=why,
    )
