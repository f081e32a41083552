"""The steps of a running task, in its record; written only by the attempt that holds the lease."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from firmq.shared.domain import task_data
from firmq.shared.domain.step import read_step, schema_member
from firmq.shared.errors import (
    IllegalTransition,
    LeaseEnded,
    QueueFull,
    StepsLost,
    TaskNotFound,
    TooManyChildren,
    TooManySteps,
)
from firmq.shared.redis.client import text, translated

if TYPE_CHECKING:
    from firmq.shared.redis.scripts import Argument, Scripts


@dataclass(frozen=True, slots=True)
class StoredSteps:
    """The records of steps by name, and the time of Redis in microseconds."""

    now_us: int
    records: Mapping[str, bytes]


PreparedChild: TypeAlias = "tuple[Argument, ...]"
"""A new task, its id first; in Redis the nine arguments of `submit.lua`."""
Check: TypeAlias = "Callable[[Any, Any], object]"
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


class RedisSteps:
    """Steps in the record of a task, for the attempt with this lease token.

    Each write says what the attempt knows to be stored. A Redis that has less refuses it: what is stored behind a hole
    would take the next attempt for a change of the code.
    """

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
        """Without `children` none can be started; `pin` is the version of the type to which steps pin the task."""
        self.children = children
        self.pin = pin
        self.most_output = most_output
        self.scripts = scripts
        self.task_id = task_id
        self.token = token
        self.most = most
        self.most_bytes = most_bytes
        self._known = 0
        """Reads and writes of the steps that Redis has confirmed."""
        self._last = ""

    def load(self) -> StoredSteps:
        with translated():
            now, *found = self.scripts.call_answered("step_load", self.task_id, self.token)
        if not found:
            raise LeaseEnded(id=self.task_id)
        self._known = int(found[0])
        return StoredSteps(
            int(now), {text(name): record for name, record in zip(found[1::2], found[2::2], strict=True)}
        )

    def save(self, name: str, record: bytes, before: bytes = b"") -> bytes:
        said, value = self._save(name, record, before)
        return value if said == b"found" else record

    def checkpoint(self, name: str, record: bytes) -> bool:
        return self._save(name, record)[1] == b"draining"

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

    def _save(self, name: str, record: bytes, before: bytes = b"") -> tuple[bytes, bytes]:
        with translated():
            reply = self.scripts.call_answered("step_save", *self._step(name, record), before)
        return self._saved(name, *reply)

    def _step(self, name: str, record: bytes) -> tuple[Argument, ...]:
        own = (self.task_id, self.token, name, record, self.most, self.most_bytes, self.pin)
        return (*own, *self._position)

    @property
    def _position(self) -> tuple[int, str]:
        return self._known, self._last

    def _confirmed(self, said: bytes, known: int = 0) -> None:
        if said == b"lost":
            raise LeaseEnded(id=self.task_id)
        if said == b"behind":
            raise StepsLost
        self._known = max(self._known, known)

    def _saved(self, name: str, said: bytes, value: bytes, known: int = 0) -> tuple[bytes, bytes]:
        self._confirmed(said, known)
        if said == b"many":
            raise too_many(self.most)
        if said == b"large":
            raise TooManySteps(
                f"the results of the steps of this task have {text(value)} bytes together with {name!r}, at most "
                f"{self.most_bytes} are allowed: store large results elsewhere and return their location, split the "
                "task, or raise MAX_STEPS_BYTES"
            )
        self._last = name
        return said, value


def too_many(most: int) -> TooManySteps:
    """Returns the error for one step more than a task may have."""
    return TooManySteps(f"this task has {most} stored steps, the most that are allowed: split it, or raise MAX_STEPS")


def too_many_children(would_have: int) -> TooManyChildren:
    """Returns the error for children that exceed the bound."""
    return TooManyChildren(
        f"a task can have {MOST_CHILDREN} children and parents, this one would have {would_have}: start the rest from "
        "its children, or submit a batch"
    )


def send_signal(
    scripts: Scripts, limits: tuple[int, int], task_id: str, name: str, data: Any, by: str, replaces: str, check: Check
) -> bool:
    """Stores a signal with its task, and wakes the task if it waits for that. Returns whether it has replaced one.

    The same data may be sent again; `replaces` ("operate" or "admin") is who may replace it. `check` raises for data
    that does not fit the schema of the signal. Raises TaskNotFound, and IllegalTransition for an ended task, and for a
    signal that is there with other data, is too late, or does not fit.
    """
    value = json.dumps(data, sort_keys=True, separators=(",", ":")).encode()
    found, what, checked, member = b"", b"typed", b"", b""
    while what == b"typed":
        sent = (task_id, name, json.dumps(by), value, *limits, replaces, checked, member)
        with translated():
            found, what, *record = scripts.call_answered("signal_send", *sent)
        for checked in record:
            if schema := read_step(name, checked).schema:
                check(schema, data)
            member = schema_member(schema)
    if not found:
        raise TaskNotFound(id=task_id)
    if what not in (b"stored", b"replaced"):
        raise IllegalTransition(f"signal {name!r} is not stored: {_REFUSALS[text(what)]}", state=text(found))
    return bool(what == b"replaced")


_REFUSALS = {
    "ended": "the task has ended",
    "other": "the task already has it, with other data: replace it, or use another name",
    "received": "its handler has received it: an admin can replace it, or any operator once the task is a dead letter",
    "late": "its time-out has passed, so the task no longer waits for it",
    "many": "the task has as many steps as MAX_STEPS allows",
    "large": "the steps of the task would exceed MAX_STEPS_BYTES: send a reference to the data instead",
}
