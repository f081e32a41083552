"""`wait_for`: the task leaves its executor, and runs again when a signal for it arrives."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any, TypeVar, cast, overload

from pydantic import TypeAdapter, ValidationError

from firmq.shared.domain.clock import instant_us
from firmq.shared.domain.json_schema import SchemaWriter
from firmq.shared.domain.step import SIGNAL, SIGNAL_NAME, Step, StepKind
from firmq.worker.executors.outcomes import explain
from firmq.worker.features.durable.replay import Replay
from firmq.worker.features.durable.sleeping import check_length, suspension
from firmq.worker.features.durable.steps import awaited, in_thread, replay_of_current_task
from firmq.worker.handlers.signals import SignalTimeout, WorkflowChanged

log = logging.getLogger(__name__)

T = TypeVar("T")


@overload
def wait_for(signal: str, *, timeout: timedelta | float | None = None) -> Any: ...


@overload
def wait_for(signal: str, data_type: type[T], timeout: timedelta | float | None = None) -> T: ...


@overload
def wait_for(signal: str, data_type: Any, timeout: timedelta | float | None = None) -> Any: ...


def wait_for(signal: str, data_type: Any = None, timeout: timedelta | float | None = None) -> Any:
    """Returns the data of a signal. Before it arrives, ends the attempt; the task runs again when it arrives.

    Meanwhile the task is scheduled and occupies no executor. A signal that was sent before is returned at once. Signals
    are sent by `POST /tasks/{id}/signals/{name}`, `client.signal`, `firmq signal` and the task's page. `timeout`
    is a timedelta or seconds, MAX_DELAY at most and by default, and counts from the first call. A task accepts one
    signal of each name. In an `async def` handler the call is awaited; `wait_for_async` has the type for that.

    With `data_type`, a pydantic model, a dataclass or any other annotation, the data is returned as such. Other data is
    refused when it is sent; if it was sent before the handler waited, the task waits for a replacement.

    Raises SignalTimeout, TaskSuspended, which ends the attempt, RuntimeError outside of a task, WorkflowChanged if an
    earlier attempt has received data that does not fit, and ValueError for a name or a time-out that cannot be used.
    """
    replay = replay_of_current_task()
    if replay is None:
        raise RuntimeError(f"wait_for({signal!r}) works only inside a task: test the handler with LocalClient")
    if not SIGNAL_NAME.fullmatch(signal):
        raise ValueError(f"the name of a signal is 1 to 90 characters out of A-Z a-z 0-9 . _ -, got {signal[:100]!r}")
    if data_type is None or isinstance(data_type, int | float | timedelta):
        data_type, timeout = Any, data_type if timeout is None else timeout
    length = timedelta(seconds=timeout) if isinstance(timeout, int | float) else timeout
    wait = _Wait(replay, signal, data_type, length)
    return in_thread(wait.result) if awaited(replay) else wait.result()


def wait_for_async(signal: str, data_type: type[T], *, timeout: timedelta | float | None = None) -> Awaitable[T]:
    """Returns what an `async def` handler awaits, as `wait_for`, with the type of the data for type checkers."""
    return cast("Awaitable[T]", wait_for(signal, data_type, timeout=timeout))


class _Wait:
    """One wait for a signal."""

    def __init__(self, replay: Replay, signal: str, data_type: Any, length: timedelta | None) -> None:
        self.replay = replay
        self.signal = signal
        self.step = f"{SIGNAL}{signal}"
        self.length_us = check_length(replay, f"wait_for({signal!r})", length or replay.longest_sleep)
        self.adapter = TypeAdapter(data_type)
        self.schema = self.adapter.json_schema(schema_generator=SchemaWriter) or None

    def result(self) -> Any:
        """Returns the data of the signal. Raises as `wait_for`."""
        replay, stored = self.replay, self.replay.begin(self.step) or self._wait()
        if stored.kind is StepKind.WAIT and stored.started_at and stored.ended_at:
            until_us = instant_us(stored.ended_at)
            if until_us <= replay.now_us():
                stored = replay.save(self.step, StepKind.TIMEOUT, None, instant_us(stored.started_at))
            elif stored.schema != self.schema:
                stored = replay.wait(self.step, until_us, self.schema)
        while stored.kind is StepKind.SIGNAL:
            value, refused = self._read(stored)
            if stored.attempt and refused:
                raise WorkflowChanged(
                    f"attempt {stored.attempt} has received signal {self.signal!r} with data that does not fit the "
                    f"expected type: {refused}. Replace the signal, or deploy a version that fits; then retry"
                )
            if stored.attempt:
                return value
            stored = self._wait(refused) if refused else replay.receive(self.step)
        if stored.kind is StepKind.TIMEOUT:
            raise SignalTimeout(f"signal {self.signal!r} did not arrive in time")
        why = f" (the last one was not accepted: {stored.value})" if stored.value else ""
        raise suspension(stored, f"waits for signal {self.signal!r}{why}", f"signal {self.signal}")

    def _wait(self, refused: str | None = None) -> Step:
        return self.replay.wait(self.step, self.replay.now_us() + self.length_us, self.schema, refused)

    def _read(self, stored: Step) -> tuple[Any, str | None]:
        """Returns the data of a signal as its type, and why it is not accepted."""
        try:
            return self.adapter.validate_json(json.dumps(stored.value)), None
        except ValidationError as error:
            refused = explain(error)
        log.warning("the data of signal %s is not accepted: %s", self.signal, refused)
        return None, refused
