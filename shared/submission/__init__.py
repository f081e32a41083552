"""Submission of tasks, shared by the gateway and programs that submit directly.

from firmq import Queue

with Queue("redis://localhost:6379/0") as queue:
    task = queue.submit("process", "to be or not to be", priority="high")
    print(queue.result(task.task_id, timeout=30))

`AsyncQueue` has the same methods for asyncio.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firmq.shared.submission.aio import AsyncQueue
    from firmq.shared.submission.queue import Queue

__all__ = ["AsyncQueue", "Queue"]


def __getattr__(name: str) -> Any:
    """Imports a queue when it is first used: programs that submit over HTTP do without the Redis driver."""
    if name == "Queue":
        from firmq.shared.submission.queue import Queue

        return Queue
    if name == "AsyncQueue":
        from firmq.shared.submission.aio import AsyncQueue

        return AsyncQueue
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
