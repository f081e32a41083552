"""What is stored for a task of Django: which function it calls, and with what."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.apps import apps
from django.utils.module_loading import import_string

from taskqueue.django.framework import InvalidTask, Task

TYPE, ASYNC_TYPE = "django.task", "django.async_task"
"""The types of tasks whose function is a plain one, and a coroutine function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The data of a task: the path of its `Task` object, its options, and the arguments."""

    task: str
    args: list[Any]
    kwargs: dict[str, Any]
    backend: str
    queue_name: str
    priority: int
    run_after: datetime | None
    enqueued_at: datetime

    def find_task(self) -> Task[..., Any]:
        """Returns the task with its options. Raises InvalidTask."""
        return find_task(self.task).using(
            priority=self.priority, queue_name=self.queue_name, run_after=self.run_after, backend=self.backend
        )


def find_task(path: str) -> Task[..., Any]:
    """Returns the task at a path. Raises InvalidTask.

    The path comes from outside: only modules of installed apps are imported for it.
    """
    module = path.rpartition(".")[0]
    if module not in sys.modules and apps.get_containing_app_config(path) is None:
        raise InvalidTask(f"{path!r} is in none of INSTALLED_APPS: install its app, or add {module} to TASK_MODULES")
    try:
        found = import_string(path)
    except ImportError as error:
        raise InvalidTask(f"{path!r} cannot be imported: {error}") from error
    if not isinstance(found, Task):
        raise InvalidTask(f"{path!r} is not a task: decorate the function with Django's @task")
    return found
