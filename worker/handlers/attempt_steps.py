"""The stored steps of an attempt: what earlier attempts of its task have stored, and what it stores itself."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from firmq.shared.domain.clock import monotonic_us
from firmq.shared.domain.decode import UNREADABLE
from firmq.shared.domain.step import Step, StepKind, encode_step, read_step
from firmq.shared.errors import CorruptRecord, LeaseEnded, StepsLost, StoreUnavailable
from firmq.shared.stores.steps import RedisSteps, StoredSteps
from firmq.worker.handlers.context import current_task
from firmq.worker.handlers.signals import LeaseLost, TaskSuspended

if TYPE_CHECKING:
    from firmq.shared.config.settings import Settings
    from firmq.shared.redis.scripts import Scripts
    from firmq.worker.executors.recorder import Recorder
    from firmq.worker.handlers.registry import Handler

log = logging.getLogger(__name__)

T = TypeVar("T")
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds between tries while Redis is unreachable."""
_MOST, _MOST_BYTES = 10_000, 64 << 20
"""The highest limits that settings can have, so that signals sent to the task leave room for its one step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """What the steps of an attempt need to know about it."""

    recorder: Recorder
    handler: Handler
    attempt: int
    encode: Callable[[object, str, str], bytes]
    """Returns the JSON of a value, as `Outcomes.json`."""
    longest_sleep: timedelta
    pin: str = ""
    """The version of the type to which steps pin the task."""
    settings: Settings | None = None
    """The executor's settings; None in local mode."""
    local: Any = None
    """Keeps the steps in local mode; None in an executor, whose tasks are in Redis."""


class StepStore(Protocol):
    """Where the steps of one task are stored."""

    def load(self) -> StoredSteps:
        """Returns the stored steps."""
        ...

    def checkpoint(self, name: str, record: bytes) -> bool:
        """Stores a checkpoint in place of the one before; returns whether the worker drains."""
        ...


class AttemptSteps:
    """Finds and stores the steps of an attempt.

    While Redis is unreachable it waits: the worker ends the attempt when its lease cannot be kept. When Redis is back
    without what it had confirmed, the attempt ends as interrupted, and the next one begins with the steps that are
    left.
    """

    def __init__(
        self, steps: StepStore, recorder: Recorder, encode: Callable[[object, str, str], bytes], attempt: int
    ) -> None:
        """`encode` returns the JSON of a value, as `Outcomes.json`."""
        self.steps = steps
        self.recorder = recorder
        self.encode = encode
        self.attempt = attempt
        self._records: dict[str, bytes] | None = None
        self._clock_offset_us = 0

    def begin(self, name: str) -> Step | None:
        """Returns the step of this name if it is stored. Raises LeaseLost."""
        records = self._load() if self._records is None else self._records
        record = records.get(name)
        return self._read(name, record) if record is not None else None

    def _load(self) -> dict[str, bytes]:
        stored = self._call(self.steps.load)
        self._records = dict(stored.records)
        self._clock_offset_us = stored.now_us - monotonic_us()
        return self._records

    def now_us(self) -> int:
        """Returns the time by Redis' clock, in microseconds."""
        return monotonic_us() + self._clock_offset_us

    def checkpoint(self, name: str, value: object, started_us: int) -> bool:
        """Stores a checkpoint in place of the one before; returns whether the worker drains.

        Raises LeaseLost, TooManySteps, ResultNotSerializable and ResultTooLarge.
        """
        record = self._record(name, StepKind.CHECKPOINT, value, started_us, self.now_us(), tries=1)
        return self._call(lambda: self.steps.checkpoint(name, record))

    def _record(self, name: str, kind: StepKind, value: object, started_us: int, ended_us: int, tries: int) -> bytes:
        json = self.encode(value, f"step {name!r}", f"the result of step {name!r}")
        return encode_step(
            kind,
            json,
            attempt=self.attempt,
            started_us=started_us,
            ended_us=ended_us,
            tries=tries,
            place=self._place_of(name),
        )

    def _place_of(self, name: str) -> int | None:
        """Returns the place of a step among those that are in order; 0, as these attempts have one step."""
        return 0

    def _call(self, function: Callable[[], T]) -> T:
        pause = FIRST_PAUSE
        while True:
            try:
                with untraced():
                    return function()
            except LeaseEnded as error:
                raise LeaseLost(str(error)) from error
            except StepsLost as error:
                message = "Redis has lost a step or output of this attempt, which runs again"
                raise TaskSuspended(message, self.now_us(), "") from error
            except StoreUnavailable as error:
                if self.recorder.ended:
                    raise LeaseLost("the attempt has ended") from error
                log.warning("steps cannot be read or stored, trying again in %g s: %s", pause, error)
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _read(self, name: str, record: bytes) -> Step:
        try:
            return read_step(name, record)
        except UNREADABLE as error:
            raise CorruptRecord(f"the stored step {name!r} cannot be read: {error}") from error


def steps_of_current_task() -> AttemptSteps | None:
    """Returns the steps of the running task for a handler that has one of them; None outside of an executor."""
    task = current_task()
    if task.recorder is None or task.recorder.assignment is None or task.step_context is None:
        return None
    about, assignment = task.step_context(task.recorder), task.recorder.assignment
    steps = RedisSteps(
        scripts_of(assignment.store),
        assignment.id.decode(),
        assignment.token,
        most=_MOST,
        most_bytes=_MOST_BYTES,
        pin=about.pin,
    )
    return AttemptSteps(steps, about.recorder, about.encode, about.attempt)


def untraced() -> AbstractContextManager[object]:
    """Returns a context whose calls of Redis add no spans to those of the handler, if calls are traced at all."""
    utils = sys.modules.get("opentelemetry.instrumentation.utils")
    return utils.suppress_instrumentation() if utils else nullcontext()


@cache
def scripts_of(store: int) -> Scripts:
    """Returns the scripts of a store, on the connection of this process for steps there."""
    from firmq.shared.config.settings import load
    from firmq.shared.redis.client import connect
    from firmq.shared.redis.scripts import Scripts

    settings = load().stores[store]
    return Scripts(connect(settings.store_url, name="steps"), confirm_writes=settings.confirm_writes)
