# Generated from shared/client/aio/resources.py by `python -m tools.unasync`: change that file.
"""The parts of the client for batches, dead letters, bulk actions, queues, types, schedules and locks."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from firmq.shared.client.answers import (
    Batch,
    BulkAction,
    BulkPreview,
    CreatedBatch,
    LimitStatus,
    Lock,
    QueueStatus,
    TypeStatus,
    WorkerStatus,
    read,
)
from firmq.shared.client.response import random_key
from firmq.shared.client.transport import Transport
from firmq.shared.client.watching import watch
from firmq.shared.submission.answers import Schedule, Status, Task
from firmq.shared.submission.options import plain
from firmq.shared.submission.problems import NotInTime

if TYPE_CHECKING:
    from firmq.shared.domain.task_state import TaskState

T = TypeVar("T")
PAGE = 200
_POLL = 0.5
"""Seconds between requests for the progress of a bulk action."""


class Pages(Iterator[T]):
    """Iterates over all items of a list and fetches pages as needed.

    `unreadable` has the names of items on the pages read so far whose records the gateway cannot read.
    """

    def __init__(self, transport: Transport, path: str, kind: type[T], query: Mapping[str, Any] | None = None) -> None:
        self.unreadable: list[str] = []
        self._items = self._all(transport, path, kind, plain(query or {}))

    def __next__(self) -> T:
        return next(self._items)

    def _all(self, transport: Transport, path: str, kind: type[T], query: Mapping[str, Any]) -> Iterator[T]:
        cursor = None
        while True:
            answer = transport.ask("GET", path, query={"limit": PAGE, **query, "cursor": cursor})
            page = answer.document
            self.unreadable += page.get("unreadable", [])
            for each in answer.items:
                yield read(kind, each)
            cursor = page["next_cursor"]
            if cursor is None:
                return


class Resource:
    """Base class of the parts of the client."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    def _ask(self, kind: type[T], method: str, path: str, **request: Any) -> T:
        answer = self.transport.ask(method, path, **request)
        return read(kind, answer.document)

    def _all(self, kind: type[T], path: str) -> list[T]:
        """Returns the items of a list that has a single page."""
        answer = self.transport.ask("GET", path)
        return [read(kind, each) for each in answer.items]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A task of a batch; None when its record is removed."""

    task: Task | None


class Batches(Resource):
    """Batches."""

    def __iter__(self) -> Iterator[Batch]:
        """Iterates over all batches, newest first."""
        return Pages(self.transport, "/batches", Batch)

    def get(self, batch_id: str) -> Batch:
        """Returns a batch. Raises NotFound."""
        return self._ask(Batch, "GET", f"/batches/{quote(batch_id, safe='')}")

    def tasks(self, batch_id: str, status: TaskState | str | None = None) -> Iterator[Task]:
        """Returns the tasks of a batch in order, without those whose records are removed."""
        path, query = f"/batches/{quote(batch_id, safe='')}/tasks", {"status": status}
        found = Pages(self.transport, path, _Place, query)
        return (each.task for each in found if each.task is not None)

    def create_from(
        self,
        task: Mapping[str, Any],
        *,
        batch_id: str | None = None,
        name: str | None = None,
        max_running: int | None = None,
        stop_on_error: int | None = None,
        then: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        **filters: Any,
    ) -> CreatedBatch:
        """Creates a batch with a task for each of up to 10,000 earlier ones, from a filter or a batch.

        `task` is one of `new_task`; in its data `{"$from": "result.url"}` becomes a value of the earlier task: `id`,
        `data`, `result`, or a field of these. `filters` are the same as for bulk actions; with `batch_id` only `status`
        applies. Raises Refused when a filter matches too many tasks, and NotFound for an unknown batch.
        """
        terms = {"name": name, "max_running": max_running, "stop_on_error": stop_on_error, "then": then}
        body = {**plain(terms), "from": plain({"batch_id": batch_id, **filters}), "task": dict(task)}
        headers = {"Idempotency-Key": idempotency_key or random_key()}
        return self._ask(CreatedBatch, "POST", "/batches", body=body, headers=headers, lasting=True)

    def cancel(self, batch_id: str, reason: str | None = None) -> Batch:
        """Cancels all tasks of a batch: no more of them start."""
        path = f"/batches/{quote(batch_id, safe='')}"
        return self._ask(Batch, "DELETE", path, query={"reason": reason}, repeatable=False)

    def retry(self, batch_id: str) -> Batch:
        """Retries all dead letters of a batch."""
        return self._ask(Batch, "POST", f"/batches/{quote(batch_id, safe='')}/retry", repeatable=False)

    def watch(self, batch_id: str) -> Generator[Batch]:
        """Yields the current batch, and again after each change, until all its tasks have ended. Raises NotFound."""
        return watch(self.transport, f"/batches/{quote(batch_id, safe='')}/events", Batch)

    def wait(self, batch_id: str, timeout: float | None = None) -> Batch:
        """Waits until all tasks of a batch have ended; `timeout` in seconds. Raises NotInTime or NotFound."""
        clock = self.transport.clock
        end = None if timeout is None else clock() + timeout
        pause = 0.05
        while (found := self.get(batch_id)).status != "ended":
            left = pause if end is None else min(pause, end - clock())
            if left <= 0:
                raise NotInTime(f"batch {batch_id} has not ended within {timeout:g} s: {found.ended} of {found.total}")
            self.transport.sleep(left)
            pause = min(1.0, pause * 1.5)
        return found


class DeadLetters(Resource):
    """Dead letters."""

    def __iter__(self) -> Iterator[Task]:
        """Iterates over all dead letters, latest failure first."""
        return self.find()

    def find(
        self, task_type: str | None = None, *, since: datetime | None = None, until: datetime | None = None
    ) -> Iterator[Task]:
        """Returns the dead letters of a type or a time range, latest failure first."""
        query = {"type": task_type, "since": since, "until": until}
        return Pages(self.transport, "/dlq/failed-tasks", Task, query)

    def retry(self, task_id: str, *, score: float | None = None) -> Status:
        """Retries a dead letter, with a new score if given.

        Raises NotFound, or Conflict if it is no dead letter or its batch is stopped.
        """
        path = f"/dlq/failed-tasks/{quote(task_id, safe='')}/retry"
        body = None if score is None else {"score": score}
        return self._ask(Status, "POST", path, body=body, repeatable=False)

    def delete(self, task_id: str) -> None:
        """Deletes a dead letter with its whole record. Raises NotFound, or Conflict if it is no dead letter."""
        self.transport.ask("DELETE", f"/dlq/failed-tasks/{quote(task_id, safe='')}", repeatable=False)


class BulkActions(Resource):
    """Actions on many tasks, which a housekeeper carries out in the background.

    `action` is cancel, run_now, move (`to` a queue), retry, delete or restore. The tasks are named by `task_ids`, or
    found by `filters`: status, type, queue, tag, submitted_by, cause, since, until, deleted, id, error, worker,
    app_version, older_than, newer_than (seconds), min_score, max_score, data, search, limit; and with several
    partitions, partition.
    """

    def preview(
        self,
        action: str,
        *,
        task_ids: Sequence[str] | None = None,
        to: str | None = None,
        patch: Mapping[str, Any] | None = None,
        **filters: Any,
    ) -> BulkPreview:
        """Returns how many tasks an action would process now, and some of them, with the changes of a `patch`."""
        body = _bulk(action, task_ids, to, filters, patch)
        return self._ask(BulkPreview, "POST", "/bulk-actions/preview", body=body)

    def start(
        self,
        action: str,
        *,
        task_ids: Sequence[str] | None = None,
        to: str | None = None,
        rate: int | None = None,
        reason: str | None = None,
        canary: int | None = None,
        patch: Mapping[str, Any] | None = None,
        **filters: Any,
    ) -> BulkAction:
        """Starts an action on the tasks that match now, at a `rate` in tasks per second.

        A retry with a `canary` retries so many first, and continues while 95 percent of the retried complete.
        With a `patch`, a JSON merge patch, it changes the data of the dead letters first. Raises Refused if that would
        not match the schema of their type.
        """
        given = {"rate": rate, "reason": reason, "canary": canary}
        body = {**_bulk(action, task_ids, to, filters, patch), **plain(given)}
        return self._ask(BulkAction, "POST", "/bulk-actions", body=body, repeatable=False)

    def all(self) -> list[BulkAction]:
        """Returns the last hundred bulk actions, newest first."""
        return self._all(BulkAction, "/bulk-actions")

    def get(self, action_id: str) -> BulkAction:
        """Returns a bulk action. Raises NotFound."""
        return self._ask(BulkAction, "GET", f"/bulk-actions/{quote(action_id, safe='')}")

    def pause(self, action_id: str) -> BulkAction:
        """Pauses a bulk action. Raises Conflict if it has ended."""
        return self._change(action_id, "pause")

    def resume(self, action_id: str) -> BulkAction:
        """Resumes a bulk action. Raises Conflict if it has ended."""
        return self._change(action_id, "resume")

    def abort(self, action_id: str) -> BulkAction:
        """Ends a bulk action; tasks that it has processed stay as they are. Raises Conflict if it has ended."""
        return self._change(action_id, "abort")

    def undo(self, action_id: str) -> BulkAction:
        """Starts a bulk action that restores what an ended one cancelled or deleted. Raises Conflict for others."""
        path = f"/bulk-actions/{quote(action_id, safe='')}/undo"
        return self._ask(BulkAction, "POST", path, repeatable=False)

    def wait(self, action_id: str, timeout: float | None = None) -> BulkAction:
        """Waits until a bulk action has ended; `timeout` in seconds. Raises NotInTime or NotFound."""
        clock = self.transport.clock
        end = None if timeout is None else clock() + timeout
        while (found := self.get(action_id)).ended_at is None:
            left = _POLL if end is None else min(_POLL, end - clock())
            if left <= 0:
                raise NotInTime(f"bulk action {action_id} has not ended: {found.done} of {found.total} done")
            self.transport.sleep(left)
        return found

    def _change(self, action_id: str, change: str) -> BulkAction:
        return self._ask(BulkAction, "POST", f"/bulk-actions/{quote(action_id, safe='')}/{change}")


def _bulk(
    action: str,
    task_ids: Sequence[str] | None,
    to: str | None,
    filters: Mapping[str, Any],
    patch: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Returns the body of a bulk action. A null in a patch removes a field, so it is sent as it is."""
    given, ids = plain(filters), list(task_ids) if task_ids else None
    body = plain({"action": action, "task_ids": ids, "filter": given or None, "to": to})
    return {**body, "patch": dict(patch)} if patch else body


class Queues(Resource):
    """The queues."""

    def all(self) -> list[QueueStatus]:
        """Returns all queues, highest weight first."""
        return self._all(QueueStatus, "/queues")

    def pause(self, name: str, reason: str, *, until: datetime | None = None) -> QueueStatus:
        """Pauses a queue: workers claim nothing more from it. A housekeeper resumes it at `until`."""
        body = plain({"reason": reason, "until": until})
        return self._ask(QueueStatus, "POST", f"/queues/{quote(name, safe='')}/pause", body=body)

    def resume(self, name: str) -> QueueStatus:
        """Resumes a queue: workers claim from it again."""
        return self._ask(QueueStatus, "POST", f"/queues/{quote(name, safe='')}/resume")

    def empty(self, name: str, *, rate: int | None = None, reason: str | None = None) -> BulkAction:
        """Starts a bulk action that cancels all waiting tasks of a queue."""
        body = plain({"rate": rate, "reason": reason})
        return self._ask(BulkAction, "POST", f"/queues/{quote(name, safe='')}/empty", body=body, repeatable=False)

    def move_foreign(self, name: str, to: str) -> int:
        """Moves foreign jobs of RQ programs to a queue that an RQ worker serves. Returns their number."""
        path = f"/queues/{quote(name, safe='')}/foreign/move"
        answer = self.transport.ask("POST", path, body={"to": to})
        return int(answer.document["moved"])


class Workers(Resource):
    """The workers on record."""

    def all(self) -> list[WorkerStatus]:
        """Returns live workers by name, then workers lost in the last week, latest first."""
        return self._all(WorkerStatus, "/workers")


class Limits(Resource):
    """Limits of task types (`type:NAME`) and of tasks with a limit key (`key:NAME`)."""

    def all(self) -> list[LimitStatus]:
        """Returns the limits in force by name."""
        return self._all(LimitStatus, "/limits")

    def get(self, name: str) -> LimitStatus:
        """Returns a limit. Raises NotFound, or ValueError for a name of another form."""
        return self._ask(LimitStatus, "GET", _limit(name))

    def set(
        self, name: str, *, concurrency: int | None = None, rate: str | None = None, burst: float | None = None
    ) -> LimitStatus:
        """Sets a limit at once for all workers; without concurrency and rate it lifts a declared one."""
        body = plain({"concurrency": concurrency, "rate": rate, "burst": burst})
        return self._ask(LimitStatus, "PUT", _limit(name), body=body)

    def clear(self, name: str) -> None:
        """Removes a limit that was set: a declared one applies again. Raises NotFound."""
        self.transport.ask("DELETE", _limit(name), repeatable=False)


def _limit(name: str) -> str:
    kind, _, own = name.partition(":")
    if kind not in ("type", "key") or not own:
        raise ValueError(f"a limit is named type:NAME or key:NAME, got {name!r}")
    return f"/limits/{kind}s/{quote(own, safe='')}"


class Types(Resource):
    """The task types that workers have published."""

    def all(self) -> list[TypeStatus]:
        """Returns all types by name."""
        return self._all(TypeStatus, "/types")

    def get(self, name: str) -> TypeStatus:
        """Returns a type. Raises NotFound."""
        return self._ask(TypeStatus, "GET", f"/types/{quote(name, safe='')}")

    def pause(self, name: str, reason: str, *, until: datetime | None = None) -> TypeStatus:
        """Pauses a type: workers start none of its tasks. A housekeeper resumes it at `until`. Raises NotFound."""
        body = plain({"reason": reason, "until": until})
        return self._ask(TypeStatus, "POST", f"/types/{quote(name, safe='')}/pause", body=body)

    def resume(self, name: str) -> TypeStatus:
        """Resumes a type: workers start its tasks again. Raises NotFound."""
        return self._ask(TypeStatus, "POST", f"/types/{quote(name, safe='')}/resume")


class Schedules(Resource):
    """Schedules."""

    def __iter__(self) -> Pages[Schedule]:
        """Iterates over all schedules by name. Those in `unreadable` must be deleted and put again."""
        return Pages(self.transport, "/schedules", Schedule)

    def get(self, name: str) -> Schedule:
        return self._ask(Schedule, "GET", f"/schedules/{quote(name, safe='')}")

    def put(
        self,
        name: str,
        task_type: str,
        data: Any = None,
        *,
        cron: str | None = None,
        interval: int | None = None,
        **more: Any,
    ) -> Schedule:
        """Creates or replaces a schedule; `more` are further fields of PUT /schedules/NAME."""
        said = {"cron": cron, "interval": interval, **more}
        body = {"type": task_type, "data": data, **plain(said)}
        return self._ask(Schedule, "PUT", f"/schedules/{quote(name, safe='')}", body=body)

    def delete(self, name: str) -> None:
        self.transport.ask("DELETE", f"/schedules/{quote(name, safe='')}", repeatable=False)

    def pause(self, name: str, reason: str) -> Schedule:
        return self._ask(Schedule, "POST", f"/schedules/{quote(name, safe='')}/pause", body={"reason": reason})

    def resume(self, name: str) -> Schedule:
        return self._ask(Schedule, "POST", f"/schedules/{quote(name, safe='')}/resume")

    def run(self, name: str) -> Status:
        """Creates a task now, in addition to due times."""
        return self._ask(Status, "POST", f"/schedules/{quote(name, safe='')}/run", repeatable=False)


class Locks(Resource):
    """Locks of housekeeping and of handlers."""

    def all(self) -> list[Lock]:
        """Returns all locks by name."""
        return self._all(Lock, "/admin/locks")

    def get(self, name: str) -> Lock:
        return self._ask(Lock, "GET", f"/admin/locks/{quote(name, safe='')}")

    def unlock(self, name: str, fencing_token: str, reason: str) -> None:
        """Releases a lock by force, in an emergency. Raises Conflict when it has another holder by now."""
        body = {"reason": reason, "fencingToken": fencing_token}
        self.transport.ask("DELETE", f"/admin/locks/{quote(name, safe='')}", body=body, repeatable=False)
