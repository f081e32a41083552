"""The steps of one attempt: those that earlier attempts have stored, and the names that this one has used."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import timedelta
from inspect import currentframe, iscoroutinefunction, unwrap
from typing import TYPE_CHECKING, Any

from firmq.shared.domain.step import SIGNAL, STEP_NAME, Step, StepKind, place_of, with_schema
from firmq.shared.failpoints import failpoint
from firmq.shared.features.durable.settings import DurableSettings
from firmq.shared.features.durable.store import DurableSteps, PreparedChild, Steps
from firmq.worker.handlers.attempt_steps import AttemptSteps, StepContext, scripts_of, untraced
from firmq.worker.handlers.signals import DuplicateStep, WorkflowChanged

if TYPE_CHECKING:
    from firmq.worker.executors.recorder import Recorder
    from firmq.worker.handlers.registry import Handler

log = logging.getLogger(__name__)

MOST_NAMED = 20
"""Names of steps in an error."""
ON_STACK: ContextVar[bool | None] = ContextVar("handler_on_stack", default=None)
"""Whether the handler is on the stack of the caller, for a function that runs in another thread; None without one."""


class Replay(AttemptSteps):
    """Finds and stores the steps of an attempt; may be used by several threads of its handler.

    Steps that the handler calls one after the other are in order: a new one cannot come before one that is stored.
    That does not hold for steps in tasks or threads that it starts, inside of a resumable loop, and behind a step whose
    error the handler has caught: the next attempt, or the retry of a dead letter, may not come to them.
    """

    steps: Steps

    def __init__(
        self,
        steps: Steps,
        recorder: Recorder,
        encode: Callable[[object, str, str], bytes],
        longest_sleep: timedelta,
        attempt: int,
        handler: Handler,
    ) -> None:
        super().__init__(steps, recorder, encode, attempt)
        self.longest_sleep = longest_sleep
        self.handler = handler
        function = unwrap(handler.function)  # a plain decorator may hide a coroutine function
        self.is_async = iscoroutinefunction(function)
        self._lock = threading.Lock()
        self._names: set[str] = set()
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
        records = super()._load()
        places = {each: place for each, record in records.items() if (place := place_of(record)) is not None}
        self._ahead = set(places)
        self._places = {place for each, place in places.items() if not each.startswith(SIGNAL)}
        return records

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

    def prepare(self, tasks: Sequence[Mapping[str, Any]], traceparent: str | None) -> Sequence[PreparedChild]:
        """Returns valid tasks as `start_children` takes them. Raises Problem and TypeError."""
        with untraced():
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
        failpoint("durable.computed")
        record = self._call(store)
        failpoint("durable.stored")
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

    def _place_of(self, name: str) -> int | None:
        return None if self.has_failed else self._in_order.get(name)

    def _read(self, name: str, record: bytes) -> Step:
        stored = super()._read(name, record)
        if stored.kind in (StepKind.ERROR, StepKind.TIMEOUT):
            self.has_failed = True
        return stored


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"the steps {', '.join(names[:MOST_NAMED])}{more}" if names else "no steps"


def open_replay(context: StepContext) -> Replay:
    """Returns the steps of the task of a running attempt."""
    steps = context.local or _in_redis(context)
    return Replay(steps, context.recorder, context.encode, context.longest_sleep, context.attempt, context.handler)


def _in_redis(context: StepContext) -> Steps:
    from firmq.worker.features.durable.children import StorePreparation

    assignment = context.recorder.assignment
    if assignment is None or context.settings is None:
        raise RuntimeError("this attempt has no task in Redis")
    own = DurableSettings.of(context.settings)
    return DurableSteps(
        scripts_of(assignment.store),
        assignment.id.decode(),
        assignment.token,
        most=own.max_steps,
        most_bytes=own.max_steps_bytes,
        most_output=own.max_output_bytes,
        children=StorePreparation(assignment.store),
        pin=context.pin,
    )
