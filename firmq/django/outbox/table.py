"""Writes rows in the caller's transaction, and reads them for a relay."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import close_old_connections, connections, router, transaction
from django.db.models import Count, Min, QuerySet

from firmq import TaskDetail, TaskState
from firmq.django.outbox.models import OutboxRow
from firmq.outbox.rows import Backlog, RefusedRow, Row, Rows, RowState, new_row


def write(task: Any, *args: Any, **kwargs: Any) -> str:
    """Writes a row; returns the id of its task."""
    row = new_row(_new_task(task, *args, **kwargs)) if hasattr(task, "get_backend") else new_row(task, *args, **kwargs)
    created_at = row.created_at if settings.USE_TZ else datetime.now()  # noqa: DTZ005  # as Django requires it there
    OutboxRow.objects.create(**{**asdict(row), "created_at": created_at})
    return row.task_id


def find(task_id: str) -> TaskDetail | None:
    """Returns the task of a row that waits for a relay, or None."""
    rows = OutboxRow.objects.using(router.db_for_write(OutboxRow)).filter(task_id=task_id)
    row = rows.exclude(state=RowState.REFUSED).first()
    if row is None:
        return None
    data, at = json.loads(row.task)["data"], _aware(row.created_at)
    return TaskDetail(task_id=task_id, type=row.type, status=TaskState.PENDING, queue="", created_at=at, data=data)


class DjangoTable:
    """The table as a relay sees it, in the database that routers choose, or a given one."""

    def __init__(self, using: str | None = None) -> None:
        self.using = using or router.db_for_write(OutboxRow)

    @property
    def locks(self) -> bool:
        return bool(connections[self.using].features.has_select_for_update_skip_locked)

    @contextmanager
    def transaction(self) -> Iterator[Rows]:
        self._check_connection()
        with transaction.atomic(using=self.using):
            yield DjangoRows(self._rows(), self.locks)

    def backlog(self) -> Backlog:
        """Returns how many rows there are. Reads the whole index."""
        self._check_connection()
        counted = self._rows().values_list("state").annotate(Count("position"), Min("created_at"))
        found = {state: (count, _aware(oldest)) for state, count, oldest in counted.order_by()}
        waiting, oldest_at = found.get(RowState.WAITING, (0, None))
        return Backlog(waiting, found.get(RowState.REFUSED, (0, None))[0], oldest_at)

    def refused(self, limit: int) -> list[RefusedRow]:
        rows = self._rows().filter(state=RowState.REFUSED).order_by("position")[:limit]
        return [RefusedRow(row.task_id, row.type, _aware(row.created_at), row.error or "") for row in rows]

    def retry_refused(self) -> int:
        return int(self._rows().filter(state=RowState.REFUSED).update(state=RowState.WAITING, error=None))

    def _check_connection(self) -> None:
        if not connections[self.using].in_atomic_block:  # such as a test's
            close_old_connections()

    def _rows(self) -> QuerySet[OutboxRow]:
        return OutboxRow.objects.using(self.using)


class DjangoRows:
    """The rows within one transaction."""

    def __init__(self, rows: QuerySet[OutboxRow], locks: bool) -> None:
        self.rows = rows
        self.locking = rows.select_for_update(skip_locked=True) if locks else rows

    def waiting(self, after: int, limit: int) -> list[Row]:
        found = self.locking.filter(state=RowState.WAITING, position__gt=after).order_by("position")
        return [Row(*each) for each in found.values_list("position", "task_id", "task", "traceparent")[:limit]]

    def sent(self, limit: int) -> list[str]:
        found = self.locking.filter(state=RowState.SENT).order_by("position")
        return list(found.values_list("task_id", flat=True)[:limit])

    def mark_sent(self, task_ids: Sequence[str]) -> None:
        self.rows.filter(task_id__in=task_ids, state=RowState.WAITING).update(state=RowState.SENT)

    def mark_refused(self, task_id: str, error: str) -> None:
        self.rows.filter(task_id=task_id, state=RowState.WAITING).update(state=RowState.REFUSED, error=error)

    def delete_sent(self, task_ids: Sequence[str]) -> None:
        self.rows.filter(task_id__in=task_ids, state=RowState.SENT).delete()


def _new_task(task: Any, *args: Any, **kwargs: Any) -> Any:
    """Returns a task of Django as `new_task` does."""
    backend = task.get_backend()
    if not hasattr(backend, "new_task"):
        name, path = type(backend).__name__, "firmq.django.FirmqBackend"
        raise TypeError(f"{task.module_path} is a task of {name}: set the BACKEND of TASKS[{task.backend!r}] to {path}")
    return backend.new_task(task, *args, **kwargs)


def _aware(at: datetime) -> datetime:
    """Returns an instant with a time zone, also in a project without USE_TZ, which stores local times."""
    return at if at.tzinfo else at.astimezone(UTC)
