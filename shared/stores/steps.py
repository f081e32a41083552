"""Stored steps in the record of a running task; written only by the attempt that holds the lease.

Every later attempt of the task finds them. Durable functions build on that, and the type `rq`, which keeps the name of
its job in one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from firmq.shared.errors import LeaseEnded, StepsLost, TooManySteps
from firmq.shared.redis.client import text, translated

if TYPE_CHECKING:
    from firmq.shared.redis.scripts import Argument, Scripts


@dataclass(frozen=True, slots=True)
class StoredSteps:
    """The records of steps by name, and the time of Redis in microseconds."""

    now_us: int
    records: Mapping[str, bytes]


class RedisSteps:
    """Steps in the record of a task, for the attempt with this lease token.

    Each write says what the attempt knows to be stored. A Redis that has less refuses it: what is stored behind a hole
    would take the next attempt for a change of the code.
    """

    def __init__(
        self, scripts: Scripts, task_id: str, token: str, *, most: int, most_bytes: int, pin: str = ""
    ) -> None:
        """`most` and `most_bytes` bound the steps of the task; `pin` is the version of its type that they pin."""
        self.pin = pin
        self.scripts = scripts
        self.task_id = task_id
        self.token = token
        self.most = most
        self.most_bytes = most_bytes
        self._known = 0
        """Reads and writes of the steps that Redis has confirmed."""
        self._last = ""

    def load(self) -> StoredSteps:
        """Returns the stored steps. Raises LeaseEnded and StoreUnavailable; all others raise StepsLost too."""
        with translated():
            now, *found = self.scripts.call_answered("step_load", self.task_id, self.token)
        if not found:
            raise LeaseEnded(id=self.task_id)
        self._known = int(found[0])
        return StoredSteps(
            int(now), {text(name): record for name, record in zip(found[1::2], found[2::2], strict=True)}
        )

    def save(self, name: str, record: bytes, before: bytes = b"") -> bytes:
        """Stores a step, and returns its record: the first one, if it was stored before and is not `before`.

        Raises LeaseEnded, TooManySteps and StoreUnavailable. Sending a step twice stores it once.
        """
        said, value = self._save(name, record, before)
        return value if said == b"found" else record

    def checkpoint(self, name: str, record: bytes) -> bool:
        """Stores a checkpoint in place of the one before; returns whether the worker drains. Raises as `save`."""
        return self._save(name, record)[1] == b"draining"

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
