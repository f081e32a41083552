"""The Python client: submits tasks, reads their state and waits for results.

from shared.client import Client

with Client("http://localhost:8000") as queue:
    task = queue.submit("process", "to be or not to be", priority="high")
    print(queue.result(task.task_id, timeout=30))
"""

from shared.client.answers import (
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
from shared.client.client import Client
from shared.client.feed import BatchFeed
from shared.client.problems import (
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
from shared.client.tasks import Options, new_task
from shared.domain.task import TaskState

__all__ = [
    "Accepted",
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
