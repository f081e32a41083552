"""Firmq: submit tasks to a gateway, and write the handlers that run them.

from firmq import Client, task

@task("greet")
def greet(name: str) -> str:
    return f"Hello {name}"

with Client("http://localhost:8000") as queue:
    print(queue.result(queue.submit("greet", {"name": "Ann"}).task_id, timeout=30))

A name is imported when it is first used, so a program that only submits tasks does not load handlers' dependencies.
"""

from importlib import import_module

TYPE_CHECKING = False
"""True for type checkers; `typing` itself would take longer to import than all of this."""

if TYPE_CHECKING:
    from firmq.shared.client import (
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
        CreatedBatch,
        Delivery,
        Ended,
        Error,
        LimitStatus,
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
        Webhook,
        WorkerStatus,
        new_task,
    )
    from firmq.shared.client.interface import TaskClient
    from firmq.shared.submission import AsyncQueue, Queue
    from firmq.worker import (
        AttemptOutcome,
        ChildFailed,
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
        WorkflowChanged,
        after_task,
        before_task,
        current_task,
        execute_with_lock,
        executor_started,
        executor_stopping,
        lock,
        on_failure,
        progress,
        report_progress,
        task,
        use_client,
        worker_started,
        worker_stopping,
    )
    from firmq.worker.local import LocalClient

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
    "Client",
    "ClientError",
    "Conflict",
    "CreatedBatch",
    "CurrentTask",
    "Delivery",
    "DuplicateStep",
    "Ended",
    "Error",
    "ExecutorContext",
    "GiveUp",
    "LeaseLost",
    "LimitStatus",
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
    "Webhook",
    "WorkerContext",
    "WorkerStatus",
    "WorkflowChanged",
    "after_task",
    "before_task",
    "current_task",
    "execute_with_lock",
    "executor_started",
    "executor_stopping",
    "lock",
    "new_task",
    "on_failure",
    "progress",
    "report_progress",
    "task",
    "use_client",
    "worker_started",
    "worker_stopping",
]

_HOMES = {
    **dict.fromkeys(("GiveUp", "RetryLater", "TaskCancelled", "TimeLimitExceeded"), "firmq.worker"),
    **dict.fromkeys(("current_task", "progress", "report_progress", "task"), "firmq.worker"),
    **dict.fromkeys(("DuplicateStep", "LeaseLost", "StepFailed", "WorkflowChanged"), "firmq.worker"),
    **dict.fromkeys(("ChildFailed", "SignalTimeout", "TaskSuspended"), "firmq.worker"),
    **dict.fromkeys(("TaskFunction", "use_client"), "firmq.worker"),
    **dict.fromkeys(("execute_with_lock", "lock"), "firmq.worker"),
    **dict.fromkeys(("AttemptOutcome", "CurrentTask", "ExecutorContext", "WorkerContext"), "firmq.worker"),
    **dict.fromkeys(("after_task", "before_task", "on_failure"), "firmq.worker"),
    **dict.fromkeys(("executor_started", "executor_stopping", "worker_started", "worker_stopping"), "firmq.worker"),
    **dict.fromkeys(("AsyncQueue", "Queue"), "firmq.shared.submission"),
    "LocalClient": "firmq.worker.local",
    "TaskClient": "firmq.shared.client.interface",
}
"""The modules of the names outside of the client."""

if TYPE_CHECKING:
    from firmq.worker.features.durable.public import *  # noqa: F403

    __all__ += ["Children", "continue_as_new", "emit", "gather", "resumable", "sleep", "sleep_until", "stable_id"]  # noqa: F405
    __all__ += ["stable_now", "stable_random", "start_children", "step", "wait_for", "wait_for_async"]  # noqa: F405
else:
    _OF_THE_CORE = __all__
    del __all__  # `__getattr__` adds the names of the features that are there

    def __getattr__(name):
        """Imports a public name when it is first used."""
        if name in _OF_THE_CORE:
            home = _HOMES.get(name, "firmq.shared.client")
        else:
            of_features = {} if name.startswith("__") and name != "__all__" else _of_features()
            home = of_features.get(name)
            if name == "__all__":
                return sorted([*_OF_THE_CORE, *of_features])
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(home), name)
        return value

    def _of_features():
        """Returns the modules of the public names that features have."""
        features = import_module("firmq.shared.registry").features_of("shared")
        return {name: home for feature in features for name, home in feature.public.items()}
