"""The client of typed submission: a given one, the process's own, or one for FIRMQ_URL."""

from __future__ import annotations

import inspect
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, cast

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from firmq.shared.client import Accepted
    from firmq.shared.client.interface import AsyncTaskSubmitter, TaskSubmitter

_CLIENTS = {
    **dict.fromkeys(("http", "https"), ("firmq.shared.client", "Client", "AsyncClient")),
    **dict.fromkeys(("redis", "rediss", "unix", "redis+sentinel"), ("firmq.shared.submission", "Queue", "AsyncQueue")),
}
"""By the scheme of a URL: the module of its clients, and their names."""
_UNSET = """\
no client to submit with: set FIRMQ_URL to the address of a gateway (http://localhost:8000) or of Redis \
(redis://localhost:6379), or call use_client(Client("http://localhost:8000")) when the program starts"""

_chosen: tuple[TaskSubmitter | AsyncTaskSubmitter, ...] = ()
# `setdefault` is atomic: threads that race for a client get the same one, and there is no lock that a fork could copy.
_of_process: dict[tuple[int, str, str | None], TaskSubmitter] = {}
_Clients: TypeAlias = "dict[tuple[str, str | None], AsyncTaskSubmitter]"
_of_loop: dict[AbstractEventLoop, _Clients] = {}


def use_client(*clients: TaskSubmitter | AsyncTaskSubmitter) -> tuple[TaskSubmitter | AsyncTaskSubmitter, ...]:
    """Sets the client of handlers' `submit` and `submit_async` in this process: a client, one for asyncio, or both.

    Without one for asyncio, `submit_async` calls the other in a thread. Without arguments, FIRMQ_URL decides
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
    return client_at(_from_environment())


def client_for_asyncio(given: TaskSubmitter | AsyncTaskSubmitter | None) -> AsyncTaskSubmitter:
    """Returns the client of `submit_async`. Raises ClientError if there is none."""
    if clients := _chosen if given is None else (given,):
        return next(filter(_is_async, clients), None) or _InThread(cast("TaskSubmitter", clients[0]))
    return async_client_at(_from_environment())


def client_at(url: str, api_key: str | None = None) -> TaskSubmitter:
    """Returns the client of this process for a URL. Raises ClientError for a URL of neither a gateway nor Redis."""
    key = os.getpid(), url, api_key
    return _of_process.get(key) or _of_process.setdefault(key, _open(url, api_key, is_async=False))


def async_client_at(url: str, api_key: str | None = None) -> AsyncTaskSubmitter:
    """Returns the client of the running event loop for a URL. Raises ClientError as `client_at` does."""
    from asyncio import get_running_loop

    loop, key = get_running_loop(), (url, api_key)
    clients = _of_loop.get(loop)
    if clients is None:
        clients = _of_loop[loop] = _of_a_closed_loop()
    if key not in clients:
        clients[key] = _open(url, api_key, is_async=True)
    return clients[key]


def _of_a_closed_loop() -> _Clients:
    """Returns the clients of a loop that is closed, else none: they close its connections when another loop uses them.

    A program may run a loop for each request, as Django does under WSGI.
    """
    for loop in list(_of_loop):
        if loop.is_closed() and (clients := _of_loop.pop(loop, None)) is not None:
            return clients
    return {}


class _InThread:
    """A client for asyncio that calls another in a thread, or where it is if that runs the task itself."""

    def __init__(self, client: TaskSubmitter) -> None:
        self.client = client

    async def submit(self, *args: Any, **options: Any) -> Accepted:
        if getattr(self.client, "in_process", False):
            if asgiref := sys.modules.get("asgiref.sync"):  # Django refuses queries in the thread of an event loop
                return cast("Accepted", await asgiref.sync_to_async(self.client.submit)(*args, **options))
            return self.client.submit(*args, **options)
        from asyncio import to_thread

        return await to_thread(self.client.submit, *args, **options)


def _is_async(client: TaskSubmitter | AsyncTaskSubmitter) -> TypeGuard[AsyncTaskSubmitter]:
    return inspect.iscoroutinefunction(client.submit)


def _from_environment() -> str:
    url = os.environ.get("FIRMQ_URL", "").strip()
    if not url:
        from firmq.shared.client import ClientError

        raise ClientError(_UNSET)
    return url


def _open(url: str, api_key: str | None, *, is_async: bool) -> Any:
    """Returns a new client."""
    scheme = url.partition("://")[0].lower()
    if scheme not in _CLIENTS:
        from firmq.shared.client import ClientError

        known = ", ".join(f"{each}://" for each in _CLIENTS)
        raise ClientError(f"the URL to submit to begins with none of {known}: correct FIRMQ_URL")
    module, *names = _CLIENTS[scheme]
    given = {} if api_key is None else {"api_key": api_key}
    return getattr(import_module(module), names[is_async])(url, **given)
