"""The worker, and the names that handlers use; users import them from `taskqueue`."""

from taskqueue.worker.handlers.context import CurrentTask, current_task, progress, report_progress
from taskqueue.worker.handlers.default_client import use_client
from taskqueue.worker.handlers.hooks import (
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
from taskqueue.worker.handlers.locking import execute_with_lock, lock
from taskqueue.worker.handlers.registry import task
from taskqueue.worker.handlers.signals import GiveUp, RetryLater, TaskCancelled, TimeLimitExceeded
from taskqueue.worker.handlers.task_function import TaskFunction

__all__ = [
    "AttemptOutcome",
    "CurrentTask",
    "ExecutorContext",
    "GiveUp",
    "RetryLater",
    "TaskCancelled",
    "TaskFunction",
    "TimeLimitExceeded",
    "WorkerContext",
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
