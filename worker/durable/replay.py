"""The steps of one attempt: those that earlier attempts have stored, and the names that this one has used."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from datetime import timedelta
from functools import cache
from inspect import currentframe, iscoroutinefunction, unwrap
from typing import TYPE_CHECKING, Any, TypeVar

from firmq.shared.domain.clock import monotonic_us
from firmq.shared.domain.decode import UNREADABLE
from firmq.shared.domain.step import (
    SIGNAL,
    STEP_NAME,
    Step,
    StepKind,
    encode_step,
    place_of,
    read_step,
    with_schema,
)
from firmq.shared.errors import CorruptRecord, LeaseEnded, StepsLost, StoreUnavailable
from firmq.shared.failpoints import failpoint
from firmq.shared.stores.steps import PreparedChild, RedisSteps, Steps
from firmq.worker.handlers.signals import DuplicateStep, LeaseLost, TaskSuspended, WorkflowChanged

if TYPE_CHECKING:
    from firmq.shared.redis.scripts import Scripts
    from firmq.worker.executors.recorder import Recorder
    from firmq.worker.handlers.registry import Handler

log = logging.getLogger(__name__)

T = TypeVar("T")
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds between tries while Redis is away."""


MOST_NAMED = 20
"""Names of steps in an error."""
ON_STACK: ContextVar[bool | None] = ContextVar("handler_on_stack", default=None)
"""Whether the handler is on the stack of the caller, for a function that runs in another thread; None without one."""


class Replay:
    """Finds and stores the steps of an attempt; may be used by several threads of its handler.

    Steps that the handler calls one after the other are in order: a new one cannot come before one that is stored.
    That does not hold for steps in tasks or threads that it starts, inside of a resumable loop, and behind a step whose
    error the handler has caught: the next attempt, or the retry of a dead letter, may not come to them.

    While Redis is away it waits: the worker ends the attempt when its lease cannot be kept. When Redis is back without
    what it had confirmed, the attempt ends as interrupted, and the next one begins with the steps that are left.
    """

    def __init__(
        self,
        steps: Steps,
        recorder: Recorder,
        encode: Callable[[object, str, str], bytes],
        longest_sleep: timedelta,
        attempt: int,
        handler: Handler,
    ) -> None:
        """`encode` returns the JSON of a value, as `Outcomes.json`."""
        self.steps = steps
        self.recorder = recorder
        self.encode = encode
        self.longest_sleep = longest_sleep
        self.attempt = attempt
        self.handler = handler
        function = unwrap(handler.function)  # a plain decorator may hide a coroutine function
        self.is_async = iscoroutinefunction(function)
        self._lock = threading.Lock()
        self._names: set[str] = set()
        self._records: dict[str, bytes] | None = None
        self._clock_offset_us = 0
        self._chunks = 0
        self._is_full = False
        self._code = getattr(function, "__code__", None)
        self._ahead: set[str] = set()
        """Stored steps in order that this attempt has not come to."""
        self._places: set[int] = set()
        """The places of stored steps. Signals have none: they may come before their turn."""
        self._in_order: dict[str, int] = {}
        """Steps of this attempt that are in order, with their places."""
        self._passed = 0
        self.open_loops = 0
        self.has_failed = False
        """Whether a step of this attempt has raised an error, which its handler may have caught."""

    def begin(self, name: str, *, out_of_order: bool = False) -> Step | None:
        """Takes the name of a step for this attempt; returns the step if it is stored.

        Raises ValueError for a name that cannot be one, DuplicateStep for one that this attempt has used, LeaseLost,
        and WorkflowChanged for a new step in order before one that is stored.
        """
        if not STEP_NAME.fullmatch(name):
            raise ValueError(
                f"the name of a step is 1 to 100 characters out of A-Z a-z 0-9 . _ : -, got {str(name)[:110]!r}"
            )
        with self._lock:
            if name in self._names:
                raise DuplicateStep(
                    f"this attempt has two steps with the name {name!r}: give each its own name, for example with "
                    "the id of what it works on"
                )
            records = self._load() if self._records is None else self._records
            record = records.get(name)
            if not out_of_order and not self.open_loops and self.is_called_by_handler():
                place = self._passed if record is None else place_of(record)
                if record is None and self._ahead:
                    if place in self._places:
                        raise self._changed(name, records)
                    log.warning("Redis has lost step %s, which others follow: it runs again", name)
                self._in_order[name] = self._passed
                self._passed += place is not None and not name.startswith(SIGNAL)
            self._ahead.discard(name)
            self._names.add(name)
        return self._read(name, record) if record is not None else None

    def _load(self) -> dict[str, bytes]:
        stored = self._call(self.steps.load)
        self._records = dict(stored.records)
        places = {each: place for each, record in self._records.items() if (place := place_of(record)) is not None}
        self._ahead = set(places)
        self._places = {place for each, place in places.items() if not each.startswith(SIGNAL)}
        self._clock_offset_us = stored.now_us - monotonic_us()
        return self._records

    def is_called_by_handler(self) -> bool:
        """Returns whether the caller runs in the handler itself, not in a task or a thread that it has started."""
        known = ON_STACK.get()
        if known is not None:
            return known
        frame = currentframe() if self._code else None
        while frame is not None:
            if frame.f_code is self._code:
                return True
            frame = frame.f_back
        return False

    def _changed(self, name: str, records: Mapping[str, bytes]) -> WorkflowChanged:
        passed, ahead = sorted(self._names), [each for each in records if each in self._ahead]
        return WorkflowChanged(
            f"the handler or its data has changed since this task began: after {_listed(passed)} it came to the new "
            f"step {name!r}, but {_listed(ahead)} are stored already. Deploy a version that calls these before "
            f"{name!r}, or call that with out_of_order=True; then retry the task"
        )

    def now_us(self) -> int:
        """Returns the time by Redis' clock, in microseconds."""
        return monotonic_us() + self._clock_offset_us

    def save(
        self, name: str, kind: StepKind, value: object, started_us: int, tries: int = 1, ended_us: int | None = None
    ) -> Step:
        """Stores a step and returns it as every later attempt finds it.

        Raises LeaseLost, TooManySteps, ResultNotSerializable and ResultTooLarge.
        """
        record = self._record(name, kind, value, started_us, self.now_us() if ended_us is None else ended_us, tries)
        return self._stored(name, lambda: self.steps.save(name, record))

    def wait(self, name: str, until_us: int, schema: object, refused: str | None = None) -> Step:
        """Stores a wait for a signal in place of what this attempt has found; raises as `save`."""
        record = self._record(name, StepKind.WAIT, refused, self.now_us(), until_us, tries=1)
        return self._replace(name, with_schema(record, schema))

    def receive(self, name: str) -> Step:
        """Notes that this attempt has received a signal; returns it, or its replacement; raises as `save`."""
        found = (self._records or {})[name]
        return self._replace(name, found.replace(b'"attempt":0,', b'"attempt":%d,' % self.attempt, 1))

    def _replace(self, name: str, record: bytes) -> Step:
        before = (self._records or {}).get(name, b"")
        return self._stored(name, lambda: self.steps.save(name, record, before))

    def checkpoint(self, name: str, value: object, started_us: int) -> bool:
        """Stores a checkpoint in place of the one before; returns whether the worker drains. Raises as `save`."""
        record = self._record(name, StepKind.CHECKPOINT, value, started_us, self.now_us(), tries=1)
        return self._call(lambda: self.steps.checkpoint(name, record))

    def prepare(self, tasks: Sequence[Mapping[str, Any]], traceparent: str | None) -> Sequence[PreparedChild]:
        """Returns valid tasks as `start_children` takes them. Raises Problem and TypeError."""
        with _untraced():
            return self.steps.prepare(tasks, traceparent)

    def start_children(self, name: str, group: str, children: Sequence[PreparedChild]) -> Step:
        """Stores the step that starts children together with them. Raises as `save`, TooManyChildren and QueueFull."""
        now_us = self.now_us()
        record = self._record(name, StepKind.RESULT, [str(each[0]) for each in children], now_us, now_us, tries=1)
        return self._stored(name, lambda: self.steps.start_children(name, record, group, children))

    def restart(self, data: bytes) -> None:
        """Removes all steps, and stores the data, in JSON, of the next attempt. Raises LeaseLost."""
        with self._lock:
            if self._records is None:
                self._load()
            signals = [each.removeprefix(SIGNAL) for each in self._names if each.startswith(SIGNAL)]
            self._call(lambda: self.steps.restart(self.handler.name, data, signals))

    def _stored(self, name: str, store: Callable[[], bytes]) -> Step:
        failpoint("step.computed")
        record = self._call(store)
        failpoint("step.stored")
        self._records = {**(self._records or {}), name: record} if name.startswith(SIGNAL) else self._records
        return self._read(name, record)

    def emit(self, chunk: object) -> None:
        """Appends a chunk of output. Raises LeaseLost, ResultNotSerializable and ResultTooLarge."""
        json = self.encode(chunk, "emit", "a chunk of output")
        with self._lock:
            if self._is_full:
                return
            self._chunks += 1
            number = self._chunks
            if not self._call(lambda: self.steps.emit(self.attempt, number, json)):
                log.warning(
                    "the output has reached MAX_OUTPUT_BYTES: chunk %d and those behind it are left out", number
                )
                self._is_full = True

    def _record(self, name: str, kind: StepKind, value: object, started_us: int, ended_us: int, tries: int) -> bytes:
        json = self.encode(value, f"step {name!r}", f"the result of step {name!r}")
        return encode_step(
            kind,
            json,
            attempt=self.attempt,
            started_us=started_us,
            ended_us=ended_us,
            tries=tries,
            place=None if self.has_failed else self._in_order.get(name),
        )

    def _call(self, function: Callable[[], T]) -> T:
        pause = FIRST_PAUSE
        while True:
            try:
                with _untraced():
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
            stored = read_step(name, record)
        except UNREADABLE as error:
            raise CorruptRecord(f"the stored step {name!r} cannot be read: {error}") from error
        if stored.kind in (StepKind.ERROR, StepKind.TIMEOUT):
            self.has_failed = True
        return stored


def _untraced() -> AbstractContextManager[object]:
    """Returns a context whose calls of Redis add no spans to those of the handler, if calls are traced at all."""
    utils = sys.modules.get("opentelemetry.instrumentation.utils")
    return utils.suppress_instrumentation() if utils else nullcontext()


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"the steps {', '.join(names[:MOST_NAMED])}{more}" if names else "no steps"


def in_redis(task_id: str, token: str, most: int, most_bytes: int, most_output: int, pin: str, partition: int) -> Steps:
    """Returns the steps of a task of a partition, on the connection of this process for steps there."""
    from firmq.worker.durable.children import PartitionPreparation

    return RedisSteps(
        _scripts(partition),
        task_id,
        token,
        most=most,
        most_bytes=most_bytes,
        most_output=most_output,
        children=PartitionPreparation(partition),
        pin=pin,
    )


@cache
def _scripts(partition: int) -> Scripts:
    from firmq.shared.config.settings import load
    from firmq.shared.redis.client import connect
    from firmq.shared.redis.scripts import Scripts

    settings = load().partitions[partition]
    return Scripts(connect(settings.store_url, name="steps"), confirm_writes=settings.confirm_writes)
