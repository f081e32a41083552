"""The Python client: submits tasks, reads their state and waits for results.

from firmq import Client

with Client("http://localhost:8000") as queue:
    task = queue.submit("process", "to be or not to be", priority="high")
    print(queue.result(task.task_id, timeout=30))

`AsyncClient` has the same methods for asyncio.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from firmq.shared.client.answers import (
    AuditEntry,
    Batch,
    BatchItem,
    Breakdown,
    BulkAction,
    BulkPreview,
    CreatedBatch,
    LimitStatus,
    Lock,
    QueueStatus,
    Timeline,
    TimelineEvent,
    TypeStatus,
    ValueCount,
    ValueCounts,
    WorkerStatus,
)
from firmq.shared.client.client import Client
from firmq.shared.domain.task_state import TaskState
from firmq.shared.submission.answers import (
    Accepted,
    Attempt,
    Delivery,
    Ended,
    Error,
    OutputChunk,
    Progress,
    Schedule,
    Status,
    StoredStep,
    Task,
    TaskDetail,
    Webhook,
)
from firmq.shared.submission.options import Options, new_task
from firmq.shared.submission.problems import (
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

if TYPE_CHECKING:
    from firmq.shared.client.aio.client import AsyncClient
    from firmq.shared.client.aio.feed import AsyncBatchFeed
    from firmq.shared.client.feed import BatchFeed

__all__ = [
    "Accepted",
    "AsyncBatchFeed",
    "AsyncClient",
    "Attempt",
    "AuditEntry",
    "Batch",
    "BatchFeed",
    "BatchItem",
    "Breakdown",
    "BulkAction",
    "BulkPreview",
    "Client",
    "ClientError",
    "Conflict",
    "CreatedBatch",
    "Delivery",
    "Ended",
    "Error",
    "LimitStatus",
    "Lock",
    "NoGateway",
    "NotAllowed",
    "NotFound",
    "NotInTime",
    "Options",
    "OutputChunk",
    "Problem",
    "Progress",
    "QueueStatus",
    "Refused",
    "Schedule",
    "Status",
    "StoredStep",
    "Task",
    "TaskDetail",
    "TaskFailed",
    "TaskState",
    "Timeline",
    "TimelineEvent",
    "TypeStatus",
    "Unavailable",
    "Unreachable",
    "ValueCount",
    "ValueCounts",
    "Webhook",
    "WorkerStatus",
    "new_task",
]


_HOMES = {"AsyncBatchFeed": "aio.feed", "AsyncClient": "aio.client", "BatchFeed": "feed"}


def __getattr__(name: str) -> Any:
    """Imports the client for asyncio, and batches, when they are first used: most programs do not pay for them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
