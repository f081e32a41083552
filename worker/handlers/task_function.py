"""The result of `@task`: a function that is called as before; `submit` submits a task instead of calling it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack

from firmq.worker.handlers.default_client import client_for_asyncio, client_for_threads

if TYPE_CHECKING:
    from firmq.shared.client import Accepted, Options
    from firmq.shared.client.interface import AsyncTaskSubmitter, TaskSubmitter

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
_COPIED = (*functools.WRAPPER_ASSIGNMENTS, "__code__", "__defaults__", "__kwdefaults__")
"""Attributes of the function. `inspect.iscoroutinefunction` looks at the last three, in every version of Python."""


class Submission(Generic[P]):
    """Submits tasks of one type, with the handler's parameters and the options of `Client.submit`."""

    def __init__(
        self,
        name: str,
        write: Callable[..., Any],
        client: TaskSubmitter | AsyncTaskSubmitter | None = None,
        idempotency_key: str | None = None,
        options: Options | None = None,
    ) -> None:
        self._name = name
        self._write = write
        self._client = client
        self._idempotency_key = idempotency_key
        self._options: Options = options or {}

    def options(
        self,
        *,
        client: TaskSubmitter | AsyncTaskSubmitter | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[Options],
    ) -> Submission[P]:
        """Returns a submission with these options added; `client` is used in place of the default one."""
        return Submission(
            self._name,
            self._write,
            self._client if client is None else client,
            self._idempotency_key if idempotency_key is None else idempotency_key,
            self._options | options,
        )

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Accepted:
        """Submits a task that calls the handler with these arguments. Returns when the task is stored.

        Raises TypeError for arguments that the handler does not take, pydantic's ValidationError for values that do not
        fit, ClientError without a client, and the errors of the client's `submit`.
        """
        return self.prepare(*args, **kwargs)()

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> Callable[[], Accepted]:
        """Checks the arguments now, and returns a function that submits the task. Both raise as `submit` does."""
        data = self._write(*args, **kwargs)

        def submit() -> Accepted:
            client = client_for_threads(self._client)
            return client.submit(self._name, data, idempotency_key=self._idempotency_key, **self._options)

        return submit

    async def submit_async(self, *args: P.args, **kwargs: P.kwargs) -> Accepted:
        """Does the same in asyncio. A client that is not for asyncio is called in a thread."""
        data = self._write(*args, **kwargs)
        client = client_for_asyncio(self._client)
        return await client.submit(self._name, data, idempotency_key=self._idempotency_key, **self._options)

    def new_task(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        """Returns a task of a batch. Raises as `submit`, and ValueError for options that only `submit` takes."""
        from firmq.shared.client import new_task

        if self._client is not None or self._idempotency_key is not None:
            raise ValueError(
                "a task of a batch has no client and no idempotency_key of its own: give them to the batch"
            )
        return new_task(self._name, self._write(*args, **kwargs), **self._options)


class TaskFunction(Submission[P], Generic[P, R_co]):
    """A handler: calling it calls its function, here and now."""

    __name__: str
    __qualname__: str
    __wrapped__: Callable[P, R_co]

    def __init__(self, name: str, write: Callable[..., Any], function: Callable[P, R_co]) -> None:
        functools.update_wrapper(self, function, assigned=_COPIED)
        super().__init__(name, write)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        return self.__wrapped__(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self._name}: {self.__module__}.{self.__qualname__}>"

    def __reduce__(self) -> str:
        """Pickles it as a function: by its name."""
        return self.__qualname__
