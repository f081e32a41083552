"""The worker, and the names that handlers use; users import them from `taskqueue`."""

from taskqueue.worker.handlers.context import current_task, progress, report_progress
from taskqueue.worker.handlers.default_client import use_client
from taskqueue.worker.handlers.locking import execute_with_lock, lock
from taskqueue.worker.handlers.registry import task
from taskqueue.worker.handlers.signals import GiveUp, RetryLater, TaskCancelled, TimeLimitExceeded
from taskqueue.worker.handlers.task_function import TaskFunction

__all__ = [
    "GiveUp",
    "RetryLater",
    "TaskCancelled",
    "TaskFunction",
    "TimeLimitExceeded",
    "current_task",
    "execute_with_lock",
    "lock",
    "progress",
    "report_progress",
    "task",
    "use_client",
]
