"""The backend of Django's tasks: stores them in Firmq, and reads their results from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, NoReturn, ParamSpec, TypeVar, cast

from asgiref.sync import sync_to_async
from django.apps import apps
from django.utils import timezone

from firmq import ClientError, NotFound, Options, Refused, TaskDetail, new_task
from firmq import Task as ListedTask
from firmq.django.call import Call
from firmq.django.framework import (
    DEFAULT_TASK_PRIORITY,
    DEFAULT_TASK_QUEUE_NAME,
    BaseTaskBackend,
    InvalidTask,
    InvalidTaskBackend,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    normalize_json,
    task_enqueued,
)
from firmq.django.results import CALL, new_result, result_of
from firmq.worker.handlers import default_client
from firmq.worker.handlers.registry import NAME

P = ParamSpec("P")
R = TypeVar("R")

PRIORITIES = {50: "critical", 1: "high", 0: None, -100: "low"}
"""Our priorities by the lowest priority of Django that maps to each; None is the default one."""
on_task: Callable[[Task[..., Any]], object] | None = None
"""Called with each task that is defined, in a worker."""
_OPTIONS = {"URL", "API_KEY", "PRIORITIES", "TASK_OPTIONS", "DASHBOARD_URL"}


class FirmqBackend(BaseTaskBackend):
    """Runs Django's tasks on the workers of Firmq.

    OPTIONS: URL of a gateway or Redis (default: FIRMQ_URL) and API_KEY (default: FIRMQ_API_KEY); PRIORITIES, a
    mapping as above; TASK_OPTIONS of every task, as for `Client.submit`; DASHBOARD_URL, for links of the admin. Raises
    InvalidTaskBackend for others.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        if unknown := ", ".join(sorted(self.options.keys() - _OPTIONS)):
            known = ", ".join(sorted(_OPTIONS))
            raise InvalidTaskBackend(f"TASKS[{alias!r}]: unknown OPTIONS {unknown}: use {known}")
        self.url: str | None = self.options.get("URL")
        self.api_key: str | None = self.options.get("API_KEY")
        self.dashboard_url = str(self.options.get("DASHBOARD_URL", "")).rstrip("/")
        self.priorities: Mapping[int, str | None] = self.options.get("PRIORITIES", PRIORITIES)
        self.task_options: Options = self.options.get("TASK_OPTIONS", {})
        if unknown := ", ".join(sorted(self.task_options.keys() - Options.__annotations__.keys())):
            raise InvalidTaskBackend(f"TASKS[{alias!r}]: unknown TASK_OPTIONS {unknown}: use options of Client.submit")

    def validate_task(self, task: Task[..., Any]) -> None:
        """Raises InvalidTask for a task that this backend cannot run."""
        super().validate_task(task)
        if task.queue_name != DEFAULT_TASK_QUEUE_NAME and task.priority != DEFAULT_TASK_PRIORITY:
            raise InvalidTask(
                f"tasks of queue {task.queue_name!r} have no priorities: use queue {DEFAULT_TASK_QUEUE_NAME!r}, "
                f"or priority {DEFAULT_TASK_PRIORITY}"
            )
        if on_task is not None:
            on_task(task)

    # --- submission ---

    def enqueue(self, task: Task[P, R], args: Any, kwargs: dict[str, Any]) -> TaskResult[P, R]:
        """Submits a task. Raises InvalidTask, TypeError for arguments without a JSON form, Problem or Unreachable."""
        call = self._call(task, args, kwargs)
        try:
            accepted = self._client().submit(task.module_path, _data(call), **self._submit_options(task))
        except Refused as error:
            _invalid(error)
        result = new_result(call, task, accepted.task_id)
        task_enqueued.send_robust(type(self), task_result=result)
        return cast("TaskResult[P, R]", result)

    async def aenqueue(self, task: Task[P, R], args: Any, kwargs: dict[str, Any]) -> TaskResult[P, R]:
        """Submits a task as `enqueue` does."""
        call = self._call(task, args, kwargs)
        try:
            accepted = await self._async_client().submit(task.module_path, _data(call), **self._submit_options(task))
        except Refused as error:
            _invalid(error)
        result = new_result(call, task, accepted.task_id)
        await task_enqueued.asend_robust(type(self), task_result=result)
        return cast("TaskResult[P, R]", result)

    def new_task(self, task: Task[..., Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Returns a task for an outbox or a batch. Raises InvalidTask, and TypeError for arguments without JSON."""
        return new_task(task.module_path, _data(self._call(task, args, kwargs)), **self._submit_options(task))

    def _call(self, task: Task[..., Any], args: Any, kwargs: dict[str, Any]) -> Call:
        self.validate_task(task)
        if not NAME.fullmatch(task.module_path):
            raise InvalidTask(
                f"{task.module_path!r} is not a name of a task type: use letters, digits, `.`, `_` and `-`, at most 100"
            )
        return Call(
            args=cast("list[Any]", normalize_json(list(args))),
            kwargs=cast("dict[str, Any]", normalize_json(kwargs)),
            backend=self.alias,
            queue_name=task.queue_name,
            priority=int(task.priority),
            run_after=task.run_after,
            enqueued_at=_aware(timezone.now()),
        )

    def _submit_options(self, task: Task[..., Any]) -> Options:
        """Returns the options of a task: its own, and for the others TASK_OPTIONS."""
        options = self.task_options.copy()
        if task.queue_name != DEFAULT_TASK_QUEUE_NAME:
            options.pop("priority", None)
            options["queue"] = task.queue_name
        elif priority := self._priority(task):
            options.pop("queue", None)
            options["priority"] = priority
        if task.run_after is not None:
            options.pop("delay", None)
            options["run_at"] = _aware(task.run_after)
        return options

    def _priority(self, task: Task[..., Any]) -> str | None:
        lowest = max((each for each in self.priorities if each <= task.priority), default=min(self.priorities))
        return self.priorities[lowest]

    # --- results ---

    def get_result(self, result_id: str) -> TaskResult[..., Any]:
        """Returns the result of a task. Raises TaskResultDoesNotExist, InvalidTask, Problem or Unreachable."""
        try:
            return result_of(self._client().get(result_id))
        except NotFound as error:
            if (waiting := _in_outbox(result_id)) is None:
                raise TaskResultDoesNotExist(result_id) from error
        return result_of(waiting)

    async def aget_result(self, result_id: str) -> TaskResult[..., Any]:
        """Returns the result of a task as `get_result` does."""
        return await sync_to_async(self.get_result, thread_sensitive=False)(result_id)

    def newest_tasks(self, count: int) -> list[ListedTask]:
        """Returns the newest tasks of any type.

        Raises NotImplementedError without a gateway, Problem, and Unreachable.
        """
        client = self._client()
        if not hasattr(client, "tasks"):
            raise NotImplementedError("lists of tasks need a gateway: set URL to its address, or open the dashboard")
        return list(islice(client.tasks(), count))

    # --- clients: Django makes a backend for each thread, the clients are shared ---

    def _client(self) -> Any:
        try:
            if self.url:
                return default_client.client_at(self.url, self.api_key)
            return default_client.client_for_threads(None)
        except (ClientError, ValueError) as error:
            raise InvalidTaskBackend(f"TASKS[{self.alias!r}]: {error}") from error

    def _async_client(self) -> Any:
        try:
            if self.url:
                return default_client.async_client_at(self.url, self.api_key)
            return default_client.client_for_asyncio(None)
        except (ClientError, ValueError) as error:
            raise InvalidTaskBackend(f"TASKS[{self.alias!r}]: {error}") from error


def _in_outbox(task_id: str) -> TaskDetail | None:
    """Returns a task that no relay has sent yet, None without one, or without an outbox."""
    if not apps.is_installed("firmq.django.outbox"):
        return None
    from firmq.django.outbox.table import find

    return find(task_id)


def _data(call: Call) -> Any:
    return CALL.dump_python(call, mode="json")


def _aware(moment: datetime) -> datetime:
    return timezone.make_aware(moment) if timezone.is_naive(moment) else moment


def _invalid(error: Refused) -> NoReturn:
    """Raises InvalidTask for a submission that the queue refuses, such as one for an invalid queue name."""
    raise InvalidTask(str(error)) from error
