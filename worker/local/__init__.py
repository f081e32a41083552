"""Local mode: handlers run in the caller's process at submission, without Redis, gateway or worker; for tests.

from firmq.worker.local import LocalClient

queue = LocalClient(["shop.tasks"])
task = queue.submit("send-invoice", {"order": 7})
assert queue.result(task.task_id) == "invoice 7, 1 copies"
"""

from firmq.worker.local.client import LocalClient

__all__ = ["LocalClient"]
