"""The worker, and the names that handlers use; users import them from `firmq`."""

from firmq.worker.handlers.context import CurrentTask, current_task, progress, report_progress
from firmq.worker.handlers.default_client import use_client
from firmq.worker.handlers.hooks import (
    AttemptOutcome,
    ExecutorContext,
    WorkerContext,
    after_task,
    before_task,
    executor_started,
    executor_stopping,
    on_failure,
    worker_started,
    worker_stopping,
)
from firmq.worker.handlers.locking import execute_with_lock, lock
from firmq.worker.handlers.registry import task
from firmq.worker.handlers.signals import (
    ChildFailed,
    DuplicateStep,
    GiveUp,
    LeaseLost,
    RetryLater,
    SignalTimeout,
    StepFailed,
    TaskCancelled,
    TaskSuspended,
    TimeLimitExceeded,
    WorkflowChanged,
)
from firmq.worker.handlers.task_function import TaskFunction

__all__ = [
    "AttemptOutcome",
    "ChildFailed",
    "CurrentTask",
    "DuplicateStep",
    "ExecutorContext",
    "GiveUp",
    "LeaseLost",
    "RetryLater",
    "SignalTimeout",
    "StepFailed",
    "TaskCancelled",
    "TaskFunction",
    "TaskSuspended",
    "TimeLimitExceeded",
    "WorkerContext",
    "WorkflowChanged",
    "after_task",
    "before_task",
    "current_task",
    "execute_with_lock",
    "executor_started",
    "executor_stopping",
    "lock",
    "on_failure",
    "progress",
    "report_progress",
    "task",
    "use_client",
    "worker_started",
    "worker_stopping",
]
