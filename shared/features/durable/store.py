"""What an attempt of a durable function stores beside its steps: children, output, and a beginning anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from firmq.shared.domain import task_data
from firmq.shared.errors import QueueFull, TooManyChildren
from firmq.shared.redis.client import text, translated
from firmq.shared.stores.steps import RedisSteps, StoredSteps

if TYPE_CHECKING:
    from firmq.shared.redis.scripts import Argument, Scripts

PreparedChild: TypeAlias = "tuple[Argument, ...]"
"""A new task, its id first; in Redis the nine arguments of `submit.lua`."""
MOST_CHILDREN = 1000
"""Children and parents of a task."""


class Preparation(Protocol):
    """Validates children, as submissions are; not imported before there are any."""

    def prepare(self, tasks: Sequence[Mapping[str, Any]], traceparent: str | None) -> Sequence[PreparedChild]:
        """Returns valid tasks as the script stores them. Raises Problem and TypeError."""
        ...

    def bounds(self) -> str:
        """Returns the bounds of the queues."""
        ...


class Steps(Protocol):
    """Where the steps of one task are stored."""

    def load(self) -> StoredSteps:
        """Returns the stored steps. Raises LeaseEnded and StoreUnavailable; all others raise StepsLost too."""
        ...

    def save(self, name: str, record: bytes, before: bytes = b"") -> bytes:
        """Stores a step, and returns its record: the first one, if it was stored before and is not `before`.

        Raises LeaseEnded, TooManySteps and StoreUnavailable. Sending a step twice stores it once.
        """
        ...

    def checkpoint(self, name: str, record: bytes) -> bool:
        """Stores a checkpoint in place of the one before; returns whether the worker drains. Raises as `save`."""
        ...

    def restart(self, task_type: str, data: bytes, signals: Sequence[str]) -> None:
        """Removes all steps but signals other than these, and stores the data of the next attempt, in JSON.

        Raises LeaseEnded and StoreUnavailable.
        """
        ...

    def emit(self, attempt: int, number: int, chunk: bytes) -> bool:
        """Appends a chunk of output, once; returns whether it is stored. Raises LeaseEnded and StoreUnavailable."""
        ...

    def prepare(self, tasks: Sequence[Mapping[str, Any]], traceparent: str | None) -> Sequence[PreparedChild]:
        """Returns valid tasks as `start_children` takes them. Raises Problem and TypeError."""
        ...

    def start_children(self, name: str, record: bytes, group: str, children: Sequence[PreparedChild]) -> bytes:
        """Stores a step together with the tasks that it starts; returns its record: the first one, if it was stored.

        Raises as `save`, and TooManyChildren and QueueFull; then nothing was stored.
        """
        ...


class DurableSteps(RedisSteps):
    """Steps in Redis, with what durable functions store beside them."""

    def __init__(
        self,
        scripts: Scripts,
        task_id: str,
        token: str,
        *,
        most: int,
        most_bytes: int,
        most_output: int = 0,
        children: Preparation | None = None,
        pin: str = "",
    ) -> None:
        """Without `children` none can be started; the rest is as in RedisSteps."""
        super().__init__(scripts, task_id, token, most=most, most_bytes=most_bytes, pin=pin)
        self.children = children
        self.most_output = most_output

    def restart(self, task_type: str, data: bytes, signals: Sequence[str]) -> None:
        with translated():
            call = task_data.encode(task_type, data.decode())
            self._confirmed(*self.scripts.call("steps_restart", self.task_id, self.token, call, self._known, *signals))

    def emit(self, attempt: int, number: int, chunk: bytes) -> bool:
        with translated():
            said = self.scripts.call(
                "output_append", *(self.task_id, self.token, attempt, number, chunk, self.most_output), *self._position
            )
        self._confirmed(*said)
        return bool(said[0] == b"stored")

    def prepare(self, tasks: Sequence[Mapping[str, Any]], traceparent: str | None) -> Sequence[PreparedChild]:
        return self._preparation.prepare(tasks, traceparent)

    def start_children(self, name: str, record: bytes, group: str, children: Sequence[PreparedChild]) -> bytes:
        arguments = [argument for child in children for argument in child]
        bounds = self._preparation.bounds()
        with translated():
            reply = self.scripts.call_answered("children_start", *self._step(name, record), group, bounds, *arguments)
        said, value, *_ = reply
        if said == b"fan-out":
            raise too_many_children(int(value) + len(children))
        if said == b"full":
            raise QueueFull(f"queue {text(value)} is full: it takes no {len(children)} more tasks")
        if said == b"queues":
            raise QueueFull(f"queue {text(value)} does not exist, and there are as many queues as MAX_QUEUES allows")
        self._saved(name, *reply)
        return value if said == b"found" else record

    @property
    def _preparation(self) -> Preparation:
        if self.children is None:
            raise RuntimeError("these steps cannot start children")
        return self.children


def too_many_children(would_have: int) -> TooManyChildren:
    """Returns the error for children that exceed the bound."""
    return TooManyChildren(
        f"a task can have {MOST_CHILDREN} children and parents, this one would have {would_have}: start the rest from "
        "its children, or submit a batch"
    )
