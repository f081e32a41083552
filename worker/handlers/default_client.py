"""The client of typed submission: a given one, one that is set for the process, or one for TASKQUEUE_URL."""

from __future__ import annotations

import inspect
import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeGuard, cast
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from taskqueue.shared.client import Accepted
    from taskqueue.shared.client.interface import AsyncTaskSubmitter, TaskSubmitter

_CLIENTS = {
    **dict.fromkeys(("http", "https"), ("taskqueue.shared.client", "Client", "AsyncClient")),
    **dict.fromkeys(("redis", "rediss", "unix"), ("taskqueue.shared.submission", "Queue", "AsyncQueue")),
}
"""By the scheme of a URL: the module of its clients, and their names."""
_UNSET = """\
no client to submit with: set TASKQUEUE_URL to the address of a gateway (http://localhost:8000) or of Redis \
(redis://localhost:6379), or call use_client(Client("http://localhost:8000")) when the program starts"""

_chosen: tuple[TaskSubmitter | AsyncTaskSubmitter, ...] = ()
# `setdefault` is atomic: threads that race for a client get the same one, and there is no lock that a fork could copy.
_of_process: dict[tuple[int, str], TaskSubmitter] = {}
_of_loop: WeakKeyDictionary[AbstractEventLoop, dict[str, AsyncTaskSubmitter]] = WeakKeyDictionary()


def use_client(*clients: TaskSubmitter | AsyncTaskSubmitter) -> tuple[TaskSubmitter | AsyncTaskSubmitter, ...]:
    """Sets what handlers' `submit` and `submit_async` use in this process: a client, one for asyncio, or both.

    Without one for asyncio, `submit_async` calls the other in a thread. Without arguments, TASKQUEUE_URL decides
    again. Returns the clients that were set before.
    """
    global _chosen
    before, _chosen = _chosen, clients
    return before


def client_for_threads(given: TaskSubmitter | AsyncTaskSubmitter | None) -> TaskSubmitter:
    """Returns the client of `submit`. Raises ClientError if there is none, and TypeError if it is for asyncio."""
    for client in _chosen if given is None else (given,):
        if not _is_async(client):
            return cast("TaskSubmitter", client)
    if given is not None:
        raise TypeError(f"submit() cannot await {type(given).__name__}: use `await ….submit_async()`")
    url, module, name, _ = _from_environment()
    key = os.getpid(), url
    return _of_process.get(key) or _of_process.setdefault(key, getattr(import_module(module), name)(url))


def client_for_asyncio(given: TaskSubmitter | AsyncTaskSubmitter | None) -> AsyncTaskSubmitter:
    """Returns the client of `submit_async`. Raises ClientError if there is none."""
    if clients := _chosen if given is None else (given,):
        return next(filter(_is_async, clients), None) or _InThread(cast("TaskSubmitter", clients[0]))
    from asyncio import get_running_loop

    url, module, _, name = _from_environment()
    clients_of_loop = _of_loop.setdefault(get_running_loop(), {})
    if url not in clients_of_loop:
        clients_of_loop[url] = getattr(import_module(module), name)(url)
    return clients_of_loop[url]


class _InThread:
    """A client for asyncio that calls another in a thread, or where it is if that runs the task itself."""

    def __init__(self, client: TaskSubmitter) -> None:
        self.client = client

    async def submit(self, *args: Any, **options: Any) -> Accepted:
        if getattr(self.client, "in_process", False):
            return self.client.submit(*args, **options)
        from asyncio import to_thread

        return await to_thread(self.client.submit, *args, **options)


def _is_async(client: TaskSubmitter | AsyncTaskSubmitter) -> TypeGuard[AsyncTaskSubmitter]:
    return inspect.iscoroutinefunction(client.submit)


def _from_environment() -> tuple[str, str, str, str]:
    """Returns TASKQUEUE_URL, and the module and the names of its clients."""
    from taskqueue.shared.client import ClientError

    url = os.environ.get("TASKQUEUE_URL", "").strip()
    if not url:
        raise ClientError(_UNSET)
    if (scheme := url.partition("://")[0].lower()) not in _CLIENTS:
        raise ClientError(f"TASKQUEUE_URL begins with none of {', '.join(f'{each}://' for each in _CLIENTS)}")
    return url, *_CLIENTS[scheme]
