"""The dead-letter queue: tasks that failed for good, until a person sends them back or removes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shared.errors import IllegalTransition, TaskNotFound
from shared.records import Filter, Page, Records
from shared.redis_client import translated
from shared.tasks import TaskState

if TYPE_CHECKING:
    from datetime import datetime

    from shared.scripts import Scripts

CHUNK = 200
"""Dead letters moved or removed in one step."""


class DeadLetters:
    """The tasks in state failed."""

    def __init__(self, scripts: Scripts, records: Records) -> None:
        self.scripts = scripts
        self.records = records

    def page(
        self,
        *,
        limit: int,
        cursor: str | None = None,
        task_type: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Page:
        """One page, the latest failure first. Raises ValueError for a cursor that no page gave out."""
        wanted = Filter(state=TaskState.FAILED, type=task_type, since=since, until=until)
        return self.records.page(wanted, limit=limit, cursor=cursor)

    def requeue(self, task_id: str) -> None:
        """Sends one back to its queue with all its retries; its attempts stay on record.

        Raises TaskNotFound, and IllegalTransition when it is not a dead letter (any more).
        """
        state, done = self.requeue_many([task_id])[0]
        _check(task_id, state, done, "retried")

    def purge(self, task_id: str) -> None:
        """Removes one for good. Raises as `requeue` does."""
        state, done = self.purge_many([task_id])[0]
        _check(task_id, state, done, "removed")

    def requeue_many(self, ids: Sequence[str]) -> list[tuple[str, bool]]:
        """Sends many back: the state each was found in and whether it was done."""
        with translated():
            return [row for at in range(0, len(ids), CHUNK) for row in self.scripts.requeue(ids[at : at + CHUNK])]

    def purge_many(self, ids: Sequence[str]) -> list[tuple[str, bool]]:
        """Removes many: the state each was found in and whether it was done."""
        failed = TaskState.FAILED
        with translated():
            return [row for at in range(0, len(ids), CHUNK) for row in self.scripts.purge(failed, ids[at : at + CHUNK])]


def _check(task_id: str, state: str, done: bool, verb: str) -> None:
    if done:
        return
    if not state:
        raise TaskNotFound(id=task_id)
    raise IllegalTransition(f"the task is {state}: only a failed task can be {verb} from the dead letters", state=state)
