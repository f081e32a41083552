"""Our backend as Django's tests want their two: one keeps tasks, the other runs them at once."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar
from unittest.mock import patch
from uuid import uuid4

from asgiref.sync import sync_to_async

from firmq import Accepted, LocalClient, TaskState
from firmq.django.backend import FirmqBackend
from firmq.django.framework import TaskResultDoesNotExist
from firmq.shared.config.settings import Settings


class Keeping(FirmqBackend):
    """Keeps tasks in a system without a worker: that of FIRMQ_URL."""

    ids: ClassVar[list[str]] = []
    removed: ClassVar[set[str]] = set()

    @property
    def results(self) -> list[Any]:
        """Returns the results of all tasks."""
        return [self.get_result(each) for each in self.ids]

    def clear(self) -> None:
        """Forgets all tasks."""
        self.removed.update(self.ids)
        self.ids.clear()

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        return self._noted(super().enqueue(task, args, kwargs))

    async def aenqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        return self._noted(await super().aenqueue(task, args, kwargs))

    def get_result(self, result_id: str) -> Any:
        if result_id in self.removed:
            raise TaskResultDoesNotExist(result_id)
        return super().get_result(result_id)

    def _noted(self, result: Any) -> Any:
        self.ids.append(result.id)
        return result


class Waiting:
    """Takes a task, which runs once its signal was sent."""

    task: tuple[str, Any]

    def submit(self, task_type: str, data: Any, **options: Any) -> Accepted:
        """Returns an accepted task."""
        self.task = (task_type, data)
        return Accepted(task_id=uuid4().hex, status=TaskState.PENDING, type=task_type, queue="normal")


class AtOnce(FirmqBackend):
    """Runs tasks by our handlers, in this process."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        waiting = Waiting()
        with patch.object(self, "_client", lambda: waiting):
            result: Any = super().enqueue(task, args, kwargs)
        with patch("firmq.worker.local.client.new_task_id", return_value=result.id):
            local().submit(*waiting.task)
        return self.get_result(result.id)

    async def aenqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        return await sync_to_async(self.enqueue, thread_sensitive=False)(task, args, kwargs)

    def get_result(self, result_id: str) -> Any:
        with patch.object(self, "_client", local):
            return super().get_result(result_id)


@cache
def local() -> LocalClient:
    """Returns the client of this process."""
    return LocalClient(["firmq.django.handlers"], settings=Settings(max_retries=0))
