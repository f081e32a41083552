"""The worker; modules with handlers import this package.

from worker import task

@task("greet")
def greet(name: str) -> str:
    return f"Hello {name}"
"""

from worker.handlers.context import current_task, progress, report_progress
from worker.handlers.locking import execute_with_lock, lock
from worker.handlers.registry import task
from worker.handlers.signals import GiveUp, RetryLater, TaskCancelled, TimeLimitExceeded

__all__ = [
    "GiveUp",
    "RetryLater",
    "TaskCancelled",
    "TimeLimitExceeded",
    "current_task",
    "execute_with_lock",
    "lock",
    "progress",
    "report_progress",
    "task",
]
