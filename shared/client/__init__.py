"""The Python client: submits tasks, reads their state and waits for results.

from taskqueue import Client

with Client("http://localhost:8000") as queue:
    task = queue.submit("process", "to be or not to be", priority="high")
    print(queue.result(task.task_id, timeout=30))

`AsyncClient` has the same methods for asyncio.
"""

from typing import TYPE_CHECKING, Any

from taskqueue.shared.client.answers import (
    Accepted,
    Attempt,
    Batch,
    BatchItem,
    Ended,
    Error,
    Lock,
    Progress,
    Queue,
    Schedule,
    Status,
    Task,
    TaskDetail,
)
from taskqueue.shared.client.client import Client
from taskqueue.shared.client.feed import BatchFeed
from taskqueue.shared.client.problems import (
    ClientError,
    Conflict,
    NoGateway,
    NotAllowed,
    NotFound,
    NotInTime,
    Problem,
    Refused,
    TaskFailed,
    Unavailable,
    Unreachable,
)
from taskqueue.shared.client.tasks import Options, new_task
from taskqueue.shared.domain.task import TaskState

if TYPE_CHECKING:
    from taskqueue.shared.client.aio.client import AsyncClient
    from taskqueue.shared.client.aio.feed import AsyncBatchFeed

__all__ = [
    "Accepted",
    "AsyncBatchFeed",
    "AsyncClient",
    "Attempt",
    "Batch",
    "BatchFeed",
    "BatchItem",
    "Client",
    "ClientError",
    "Conflict",
    "Ended",
    "Error",
    "Lock",
    "NoGateway",
    "NotAllowed",
    "NotFound",
    "NotInTime",
    "Options",
    "Problem",
    "Progress",
    "Queue",
    "Refused",
    "Schedule",
    "Status",
    "Task",
    "TaskDetail",
    "TaskFailed",
    "TaskState",
    "Unavailable",
    "Unreachable",
    "new_task",
]


def __getattr__(name: str) -> Any:
    """Imports the client for asyncio when it is first used: programs without it do not pay for asyncio."""
    if name not in ("AsyncBatchFeed", "AsyncClient"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from taskqueue.shared.client.aio import client

    return getattr(client, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
