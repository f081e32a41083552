"""Local mode: tasks run in the caller's process, without Redis, gateway or worker; for tests and small jobs.

from worker.local import LocalClient

queue = LocalClient(["shop.tasks"])
task = queue.submit("send-invoice", {"order": 7})
assert queue.result(task.task_id) == "invoice 7, 1 copies"
"""

from worker.local.client import LocalClient
from worker.local.time import SteppedTime, Time, WallTime

__all__ = ["LocalClient", "SteppedTime", "Time", "WallTime"]
