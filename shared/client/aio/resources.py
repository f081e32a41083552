"""The parts of the client for batches, dead letters, queues, schedules and locks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from taskqueue.shared.client.aio.transport import Transport
from taskqueue.shared.client.aio.watching import watch
from taskqueue.shared.client.answers import Batch, Lock, QueueStatus, Schedule, read
from taskqueue.shared.submission.answers import Status, Task
from taskqueue.shared.submission.options import plain
from taskqueue.shared.submission.problems import NotInTime

if TYPE_CHECKING:
    from taskqueue.shared.domain.task_state import TaskState

T = TypeVar("T")
PAGE = 200


class Pages(AsyncIterator[T]):
    """Iterates over all items of a list and fetches pages as needed.

    `unreadable` has the names of items on the pages read so far whose records the gateway cannot read.
    """

    def __init__(self, transport: Transport, path: str, kind: type[T], query: Mapping[str, Any] | None = None) -> None:
        self.unreadable: list[str] = []
        self._items = self._all(transport, path, kind, plain(query or {}))

    async def __anext__(self) -> T:
        return await anext(self._items)

    async def _all(self, transport: Transport, path: str, kind: type[T], query: Mapping[str, Any]) -> AsyncIterator[T]:
        cursor = None
        while True:
            answer = await transport.ask("GET", path, query={"limit": PAGE, **query, "cursor": cursor})
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

    async def _ask(self, kind: type[T], method: str, path: str, **request: Any) -> T:
        answer = await self.transport.ask(method, path, **request)
        return read(kind, answer.document)

    async def _all(self, kind: type[T], path: str) -> list[T]:
        """Returns the items of a list that has a single page."""
        answer = await self.transport.ask("GET", path)
        return [read(kind, each) for each in answer.items]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A task of a batch; None when its record is removed."""

    task: Task | None


class Batches(Resource):
    """Batches."""

    def __aiter__(self) -> AsyncIterator[Batch]:
        """Iterates over all batches, newest first."""
        return Pages(self.transport, "/batches", Batch)

    async def get(self, batch_id: str) -> Batch:
        """Returns a batch. Raises NotFound."""
        return await self._ask(Batch, "GET", f"/batches/{quote(batch_id, safe='')}")

    def tasks(self, batch_id: str, status: TaskState | str | None = None) -> AsyncIterator[Task]:
        """Returns the tasks of a batch in order, without those whose records are removed."""
        path, query = f"/batches/{quote(batch_id, safe='')}/tasks", {"status": status}
        found = Pages(self.transport, path, _Place, query)
        return (each.task async for each in found if each.task is not None)

    async def cancel(self, batch_id: str, reason: str | None = None) -> Batch:
        """Cancels all tasks of a batch: no more of them start."""
        path = f"/batches/{quote(batch_id, safe='')}"
        return await self._ask(Batch, "DELETE", path, query={"reason": reason}, repeatable=False)

    async def retry(self, batch_id: str) -> Batch:
        """Retries all dead letters of a batch."""
        return await self._ask(Batch, "POST", f"/batches/{quote(batch_id, safe='')}/retry", repeatable=False)

    def watch(self, batch_id: str) -> AsyncGenerator[Batch]:
        """Yields the current batch, and again after each change, until all its tasks have ended. Raises NotFound."""
        return watch(self.transport, f"/batches/{quote(batch_id, safe='')}/events", Batch)

    async def wait(self, batch_id: str, timeout: float | None = None) -> Batch:
        """Waits until all tasks of a batch have ended; `timeout` in seconds. Raises NotInTime or NotFound."""
        clock = self.transport.clock
        end = None if timeout is None else clock() + timeout
        pause = 0.05
        while (found := await self.get(batch_id)).status != "ended":
            left = pause if end is None else min(pause, end - clock())
            if left <= 0:
                raise NotInTime(f"batch {batch_id} has not ended within {timeout:g} s: {found.ended} of {found.total}")
            await self.transport.sleep(left)
            pause = min(1.0, pause * 1.5)
        return found


class DeadLetters(Resource):
    """Dead letters."""

    def __aiter__(self) -> AsyncIterator[Task]:
        """Iterates over all dead letters, latest failure first."""
        return self.find()

    def find(
        self, task_type: str | None = None, *, since: datetime | None = None, until: datetime | None = None
    ) -> AsyncIterator[Task]:
        """Returns the dead letters of a type or a time range, latest failure first."""
        query = {"type": task_type, "since": since, "until": until}
        return Pages(self.transport, "/dlq/failed-tasks", Task, query)

    async def retry(self, task_id: str) -> Status:
        """Retries a dead letter. Raises NotFound, or Conflict if it is no dead letter or its batch is stopped."""
        path = f"/dlq/failed-tasks/{quote(task_id, safe='')}/retry"
        return await self._ask(Status, "POST", path, repeatable=False)

    async def delete(self, task_id: str) -> None:
        """Deletes a dead letter with its whole record. Raises NotFound, or Conflict if it is no dead letter."""
        await self.transport.ask("DELETE", f"/dlq/failed-tasks/{quote(task_id, safe='')}", repeatable=False)


class Queues(Resource):
    """The queues."""

    async def all(self) -> list[QueueStatus]:
        """Returns all queues, highest weight first."""
        return await self._all(QueueStatus, "/queues")

    async def pause(self, name: str, reason: str) -> QueueStatus:
        """Pauses a queue: workers claim nothing more from it."""
        return await self._ask(QueueStatus, "POST", f"/queues/{quote(name, safe='')}/pause", body={"reason": reason})

    async def resume(self, name: str) -> QueueStatus:
        """Resumes a queue: workers claim from it again."""
        return await self._ask(QueueStatus, "POST", f"/queues/{quote(name, safe='')}/resume")

    async def move_foreign(self, name: str, to: str) -> int:
        """Moves foreign jobs of RQ programs to a queue that an RQ worker serves. Returns their number."""
        path = f"/queues/{quote(name, safe='')}/foreign/move"
        answer = await self.transport.ask("POST", path, body={"to": to})
        return int(answer.document["moved"])


class Schedules(Resource):
    """Schedules."""

    def __aiter__(self) -> Pages[Schedule]:
        """Iterates over all schedules by name. Those in `unreadable` must be deleted and put again."""
        return Pages(self.transport, "/schedules", Schedule)

    async def get(self, name: str) -> Schedule:
        return await self._ask(Schedule, "GET", f"/schedules/{quote(name, safe='')}")

    async def put(
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
        return await self._ask(Schedule, "PUT", f"/schedules/{quote(name, safe='')}", body=body)

    async def delete(self, name: str) -> None:
        await self.transport.ask("DELETE", f"/schedules/{quote(name, safe='')}", repeatable=False)

    async def pause(self, name: str, reason: str) -> Schedule:
        return await self._ask(Schedule, "POST", f"/schedules/{quote(name, safe='')}/pause", body={"reason": reason})

    async def resume(self, name: str) -> Schedule:
        return await self._ask(Schedule, "POST", f"/schedules/{quote(name, safe='')}/resume")

    async def run(self, name: str) -> Status:
        """Creates a task now, in addition to due times."""
        return await self._ask(Status, "POST", f"/schedules/{quote(name, safe='')}/run", repeatable=False)


class Locks(Resource):
    """Locks of housekeeping and of handlers."""

    async def all(self) -> list[Lock]:
        """Returns all locks by name."""
        return await self._all(Lock, "/admin/locks")

    async def get(self, name: str) -> Lock:
        return await self._ask(Lock, "GET", f"/admin/locks/{quote(name, safe='')}")

    async def unlock(self, name: str, fencing_token: str, reason: str) -> None:
        """Releases a lock by force, in an emergency. Raises Conflict when it has another holder by now."""
        body = {"reason": reason, "fencingToken": fencing_token}
        await self.transport.ask("DELETE", f"/admin/locks/{quote(name, safe='')}", body=body, repeatable=False)
