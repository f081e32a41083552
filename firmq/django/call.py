"""The stored form of a Django task: the function's path is its type, and its data are the arguments of the call."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from django.apps import apps
from django.utils.module_loading import import_string
from pydantic import ConfigDict

from firmq import task as register
from firmq.django.framework import DEFAULT_TASK_PRIORITY, DEFAULT_TASK_QUEUE_NAME, InvalidTask, Task

Function = TypeVar("Function", bound=Callable[..., Any])
_OPTIONS = "firmq_options"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The data of a task: the arguments, and the options of its `Task` object."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    backend: str = "default"
    queue_name: str = DEFAULT_TASK_QUEUE_NAME
    priority: int = DEFAULT_TASK_PRIORITY
    run_after: datetime | None = None
    enqueued_at: datetime | None = None

    def with_options(self, task: Task[..., Any]) -> Task[..., Any]:
        """Returns a task with the options of this call. Raises InvalidTask."""
        return task.using(
            priority=self.priority, queue_name=self.queue_name, run_after=self.run_after, backend=self.backend
        )


def handler_options(**options: Any) -> Callable[[Function], Function]:
    """Gives the function of a task of Django options of `firmq.task`, such as `max_retries` or `concurrency`.

    Put it below `@task`. Raises TypeError for an unknown option.
    """
    inspect.signature(register).bind("", **options)

    def decorate(function: Function) -> Function:
        setattr(function, _OPTIONS, options)
        return function

    return decorate


def options_of(task: Task[..., Any]) -> dict[str, Any]:
    """Returns the options that `handler_options` gave to a task's function."""
    found: dict[str, Any] = getattr(task.func, _OPTIONS, {})
    return found


def find_task(path: str) -> Task[..., Any]:
    """Returns the task at a path. Raises InvalidTask.

    The path comes from outside: only modules of installed apps are imported for it.
    """
    module = path.rpartition(".")[0]
    if module not in sys.modules and apps.get_containing_app_config(path) is None:
        where = f"add {module} to TASK_MODULES" if module else "give its path, such as shop.tasks.send_receipt"
        raise InvalidTask(f"{path!r} is in none of INSTALLED_APPS: install its app, or {where}")
    try:
        found = import_string(path)
    except ImportError as error:
        raise InvalidTask(f"{path!r} cannot be imported: {error}") from error
    if not isinstance(found, Task):
        raise InvalidTask(f"{path!r} is not a task: decorate the function with Django's @task")
    return found
