"""The interfaces shared by the client of a gateway and the local mode."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator, Mapping
from typing import Any, Protocol, Unpack

from firmq.shared.client.answers import BatchItem
from firmq.shared.domain.task_state import TaskState
from firmq.shared.submission.answers import Accepted, Ended, Status, Task, TaskDetail
from firmq.shared.submission.options import Options, Seconds


class SentBatch(Protocol):
    """A batch that is being sent."""

    @property
    def accepted(self) -> int: ...

    @property
    def refused(self) -> int: ...

    @property
    def batch_id(self) -> str | None: ...

    def __iter__(self) -> Iterator[BatchItem]: ...

    def drain(self) -> SentBatch: ...


class TaskSubmitter(Protocol):
    """Submits tasks; `Client` documents the method."""

    def submit(
        self, task_type: str, data: Any = None, *, idempotency_key: str | None = None, **options: Unpack[Options]
    ) -> Accepted: ...


class AsyncTaskSubmitter(Protocol):
    """Submits tasks in asyncio; `AsyncClient` documents the method."""

    def submit(
        self, task_type: str, data: Any = None, *, idempotency_key: str | None = None, **options: Unpack[Options]
    ) -> Awaitable[Accepted]: ...


class TaskClient(TaskSubmitter, Protocol):
    """Submits tasks and waits for them; `Client` documents the methods."""

    def batch(
        self, tasks: Iterable[Mapping[str, Any]], *, name: str | None = None, then: Mapping[str, Any] | None = None
    ) -> SentBatch: ...

    def get(self, task_id: str) -> TaskDetail: ...

    def tasks(
        self, *, status: TaskState | str | None = None, task_type: str | None = None, tag: str | None = None
    ) -> Iterator[Task]: ...

    def wait(self, task_id: str, timeout: Seconds | None = None) -> Ended: ...

    def result(self, task_id: str, timeout: Seconds | None = None) -> Any: ...

    def cancel(self, task_id: str, reason: str | None = None) -> Status: ...
