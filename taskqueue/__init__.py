"""Task Queue: submit tasks to a gateway, and write the handlers that run them.

from taskqueue import Client, task

@task("greet")
def greet(name: str) -> str:
    return f"Hello {name}"

with Client("http://localhost:8000") as queue:
    print(queue.result(queue.submit("greet", {"name": "Ann"}).task_id, timeout=30))

A name is imported when it is first used, so a program that only submits tasks does not load what handlers need.
"""

from importlib import import_module

TYPE_CHECKING = False
"""True for type checkers; `typing` itself would take longer to import than all of this."""

if TYPE_CHECKING:
    from taskqueue.shared.client import (
        Accepted,
        AsyncBatchFeed,
        AsyncClient,
        Attempt,
        AuditEntry,
        Batch,
        BatchFeed,
        BatchItem,
        Breakdown,
        BulkAction,
        BulkPreview,
        Client,
        ClientError,
        Conflict,
        Ended,
        Error,
        Lock,
        NoGateway,
        NotAllowed,
        NotFound,
        NotInTime,
        Options,
        OutputChunk,
        Problem,
        Progress,
        QueueStatus,
        Refused,
        Schedule,
        Status,
        StoredStep,
        Task,
        TaskDetail,
        TaskFailed,
        TaskState,
        Timeline,
        TimelineEvent,
        TypeStatus,
        Unavailable,
        Unreachable,
        ValueCount,
        ValueCounts,
        new_task,
    )
    from taskqueue.shared.client.interface import TaskClient
    from taskqueue.shared.submission import AsyncQueue, Queue
    from taskqueue.worker import (
        AttemptOutcome,
        ChildFailed,
        Children,
        CurrentTask,
        DuplicateStep,
        ExecutorContext,
        GiveUp,
        LeaseLost,
        RetryLater,
        SignalTimeout,
        StepFailed,
        TaskCancelled,
        TaskFunction,
        TaskSuspended,
        TimeLimitExceeded,
        WorkerContext,
        after_task,
        before_task,
        current_task,
        emit,
        execute_with_lock,
        executor_started,
        executor_stopping,
        gather,
        lock,
        on_failure,
        progress,
        report_progress,
        resumable,
        sleep,
        sleep_until,
        stable_id,
        stable_now,
        stable_random,
        start_children,
        step,
        task,
        use_client,
        wait_for,
        worker_started,
        worker_stopping,
    )
    from taskqueue.worker.local import LocalClient

__all__ = [
    "Accepted",
    "AsyncBatchFeed",
    "AsyncClient",
    "AsyncQueue",
    "Attempt",
    "AttemptOutcome",
    "AuditEntry",
    "Batch",
    "BatchFeed",
    "BatchItem",
    "Breakdown",
    "BulkAction",
    "BulkPreview",
    "ChildFailed",
    "Children",
    "Client",
    "ClientError",
    "Conflict",
    "CurrentTask",
    "DuplicateStep",
    "Ended",
    "Error",
    "ExecutorContext",
    "GiveUp",
    "LeaseLost",
    "LocalClient",
    "Lock",
    "NoGateway",
    "NotAllowed",
    "NotFound",
    "NotInTime",
    "Options",
    "OutputChunk",
    "Problem",
    "Progress",
    "Queue",
    "QueueStatus",
    "Refused",
    "RetryLater",
    "Schedule",
    "SignalTimeout",
    "Status",
    "StepFailed",
    "StoredStep",
    "Task",
    "TaskCancelled",
    "TaskClient",
    "TaskDetail",
    "TaskFailed",
    "TaskFunction",
    "TaskState",
    "TaskSuspended",
    "TimeLimitExceeded",
    "Timeline",
    "TimelineEvent",
    "TypeStatus",
    "Unavailable",
    "Unreachable",
    "ValueCount",
    "ValueCounts",
    "WorkerContext",
    "after_task",
    "before_task",
    "current_task",
    "emit",
    "execute_with_lock",
    "executor_started",
    "executor_stopping",
    "gather",
    "lock",
    "new_task",
    "on_failure",
    "progress",
    "report_progress",
    "resumable",
    "sleep",
    "sleep_until",
    "stable_id",
    "stable_now",
    "stable_random",
    "start_children",
    "step",
    "task",
    "use_client",
    "wait_for",
    "worker_started",
    "worker_stopping",
]

_HOMES = {
    **dict.fromkeys(("GiveUp", "RetryLater", "TaskCancelled", "TimeLimitExceeded"), "taskqueue.worker"),
    **dict.fromkeys(("current_task", "progress", "report_progress", "task"), "taskqueue.worker"),
    **dict.fromkeys(("DuplicateStep", "LeaseLost", "StepFailed", "step"), "taskqueue.worker"),
    **dict.fromkeys(
        ("SignalTimeout", "TaskSuspended", "resumable", "sleep", "sleep_until", "wait_for"), "taskqueue.worker"
    ),
    **dict.fromkeys(("ChildFailed", "Children", "emit", "gather", "start_children"), "taskqueue.worker"),
    **dict.fromkeys(("stable_id", "stable_now", "stable_random"), "taskqueue.worker"),
    **dict.fromkeys(("TaskFunction", "use_client"), "taskqueue.worker"),
    **dict.fromkeys(("execute_with_lock", "lock"), "taskqueue.worker"),
    **dict.fromkeys(("AttemptOutcome", "CurrentTask", "ExecutorContext", "WorkerContext"), "taskqueue.worker"),
    **dict.fromkeys(("after_task", "before_task", "on_failure"), "taskqueue.worker"),
    **dict.fromkeys(("executor_started", "executor_stopping", "worker_started", "worker_stopping"), "taskqueue.worker"),
    **dict.fromkeys(("AsyncQueue", "Queue"), "taskqueue.shared.submission"),
    "LocalClient": "taskqueue.worker.local",
    "TaskClient": "taskqueue.shared.client.interface",
}
"""Where names are from that are not the client's."""

if not TYPE_CHECKING:

    def __getattr__(name):
        """Imports a public name when it is first used."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOMES.get(name, "taskqueue.shared.client")), name)
        return value
