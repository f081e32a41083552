"""An executor: a process that runs one handler after the other, for as long as its worker lives.

It has no connection to Redis. Tasks come through a pipe and outcomes leave through another (`worker.channel`); the
worker holds the leases, so a handler that is stuck in C code loses nothing but its own time limit.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import random
import signal
import sys
import time
import traceback
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict
from types import FrameType
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from shared import logs, wire
from shared.clock import to_us
from shared.errors import CorruptRecord
from shared.retry import RetryPolicy
from shared.settings import Settings, load
from shared.tasks import Outcome as Ending
from worker import channel
from worker.channel import CANCEL_SIGNAL, TIME_LIMIT_SIGNAL, Assignment, ExecutorEnds, Outcome
from worker.handlers import registry
from worker.handlers.context import CurrentTask, current
from worker.handlers.registry import Handler, HandlerError
from worker.handlers.signals import GiveUp, RetryLater, TaskCancelled, TimeLimitExceeded
from worker.process import die_with_parent

_LONGEST_MESSAGE = 2000
_LONGEST_TRACEBACK = 8000
_PROGRESS_INTERVAL = 0.2


class ResultNotSerializable(Exception):
    """The handler returned something that has no JSON form."""


class ResultTooLarge(Exception):
    """The handler returned more than MAX_RESULT_BYTES."""


class UnknownTaskType(Exception):
    """No module in TASK_MODULES of this worker registers the type."""


class InvalidData(Exception):
    """The data does not fit the handler's parameters."""


FINAL = (GiveUp, ResultNotSerializable, ResultTooLarge, InvalidData, CorruptRecord)
"""Errors that another try cannot mend."""


class LogTail(logging.Handler):
    """Keeps the last log lines of the running attempt and tells the worker each, in case this process dies."""

    def __init__(self, limit: int, send: Callable[[str], None]) -> None:
        super().__init__()
        self.limit = limit
        self.send = send
        self.lines: deque[str] = deque()
        self.size = 0
        self.active = False

    def start(self) -> None:
        if self.lines:
            self.lines.clear()
            self.size = 0
        self.active = True

    def emit(self, record: logging.LogRecord) -> None:
        if not self.active:
            return
        stamp = time.strftime("%H:%M:%S", time.gmtime(record.created))
        try:
            line = f"{stamp} {record.levelname} {record.getMessage()}"[: self.limit]
        except Exception:
            line = f"{stamp} {record.levelname} (a log line that cannot be formatted: {record.msg!r})"[: self.limit]
        self.lines.append(line)
        self.size += len(line)
        while self.size > self.limit:
            self.size -= len(self.lines.popleft())
        self.send(line)


class Executor:
    """Runs assignments one by one."""

    def __init__(self, handlers: dict[str, Handler], settings: Settings, worker: str, ends: ExecutorEnds) -> None:
        self.handlers = handlers
        self.settings = settings
        self.policy = settings.retry_policy
        self.worker = worker
        self.ends = ends
        self.random = random.Random()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.log = LogTail(settings.max_log_bytes, self._send_log)
        self.number = 0
        self.started_us = 0
        self.limit_us = 0
        self.interruptible = False
        self.progress_sent = 0.0

    # --- the loop ---

    def run(self) -> None:
        """Runs tasks until the worker closes the pipes."""
        self._send(_hello(self.handlers))
        signal.signal(TIME_LIMIT_SIGNAL, self._on_time_limit)
        signal.signal(CANCEL_SIGNAL, self._on_cancel)
        for clock_offset_us, assignment in self._assignments():
            outcome = self.attempt(assignment, clock_offset_us)
            self._send((channel.OUTCOME, *outcome))

    def _assignments(self) -> Iterator[tuple[int, Assignment]]:
        """Tasks whose ticket this process got; those whose ticket was taken back are passed over."""
        waiting: deque[tuple[int, Assignment]] = deque()
        with os.fdopen(self.ends.tasks, "rb", buffering=1 << 16) as file:
            for number in channel.take_tickets(self.ends.tickets):
                while True:
                    while not waiting:
                        frame = channel.read_frame(file)
                        if frame is None:
                            return
                        waiting.extend((frame[0], Assignment(*fields)) for fields in frame[1])
                    item = waiting.popleft()
                    if item[1].number == number:
                        break
                yield item

    # --- one attempt ---

    def attempt(self, assignment: Assignment, clock_offset_us: int) -> Outcome:
        """Runs one task to its outcome; nothing that a handler raises gets out."""
        self.number = assignment.number
        self.started_us = time.monotonic_ns() // 1000
        self.limit_us = int(assignment.limit * 1_000_000)
        self.log.start()
        handler = self.handlers.get(assignment.type.decode())
        result = b""
        error: BaseException | None = None
        try:
            self.interruptible = True
            result = self._run(handler, assignment)
            self.interruptible = False
        except BaseException as caught:  # a handler may raise SystemExit, KeyboardInterrupt or its own BaseException
            error = caught
        self.interruptible = False
        self.log.active = False
        ended_us = time.monotonic_ns() // 1000
        record = {
            "worker": self.worker,
            "enqueued_at": assignment.enqueued_us,
            "started_at": self.started_us + clock_offset_us,
            "ended_at": ended_us + clock_offset_us,
        }
        run_us = ended_us - self.started_us
        if error is None:
            return Outcome(assignment.number, "completed", 0, self._completed(record), b"", result, run_us, "")
        return self._failed(assignment, handler, error, record, run_us)

    def _run(self, handler: Handler | None, assignment: Assignment) -> bytes:
        """The result of the handler, ready for RQ's stream."""
        _parsed(assignment.retry, "retry policy")
        if handler is None:
            known = ", ".join(sorted(self.handlers))
            raise UnknownTaskType(
                f"this worker has no handler for {assignment.type.decode()!r} (it has: {known}); "
                "name the module that registers it in TASK_MODULES"
            )
        arguments = self._arguments(handler, assignment)
        token = current.set(self._context(assignment))
        try:
            value = handler.call(arguments)
            if handler.is_async:
                value = self._finish(value)
        finally:
            current.reset(token)
        return _NULL if value is None else self._encode(value)

    def _arguments(self, handler: Handler, assignment: Assignment) -> Any:
        data = wire.decode(assignment.type.decode(), assignment.call)
        try:
            return handler.read(data)
        except ValidationError as error:
            raise InvalidData(_explain(error)) from error

    def _context(self, assignment: Assignment) -> CurrentTask:
        meta = _parsed(assignment.meta, "metadata")
        return CurrentTask(
            id=assignment.id.decode(),
            type=assignment.type.decode(),
            attempt=assignment.attempt,
            failures=assignment.failures,
            traceparent=meta.get("traceparent"),
            send_progress=self._send_progress,
        )

    def _finish(self, coroutine: Any) -> Any:
        """Runs a coroutine; what it left running is cancelled with it."""
        if self.loop is None:
            self.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)
        try:
            return self.loop.run_until_complete(coroutine)
        finally:
            left = asyncio.all_tasks(self.loop)
            for each in left:
                each.cancel()
            if left:
                self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))

    def _encode(self, value: Any) -> bytes:
        try:
            text = json.dumps(value, allow_nan=False, separators=(",", ":"), default=to_jsonable_python).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise ResultNotSerializable(
                f"the handler returned {type(value).__name__} that has no JSON form ({error}): return text, numbers, "
                "lists, mappings, dataclasses or pydantic models"
            ) from error
        if len(text) > self.settings.max_result_bytes:
            raise ResultTooLarge(
                f"the result has {len(text)} bytes as JSON, {self.settings.max_result_bytes} is the most: "
                "store it elsewhere and return where it is, or raise MAX_RESULT_BYTES"
            )
        return base64.b64encode(text)

    # --- the outcome ---

    def _completed(self, record: dict[str, Any]) -> bytes:
        if self.log.lines:
            return _dump({**record, "outcome": Ending.COMPLETED, "logs": list(self.log.lines)})
        return (
            f'{{"worker":"{self.worker}","enqueued_at":{record["enqueued_at"]},"started_at":{record["started_at"]},'
            f'"ended_at":{record["ended_at"]},"outcome":"completed"}}'
        ).encode()

    def _failed(
        self, assignment: Assignment, handler: Handler | None, error: BaseException, record: dict[str, Any], run_us: int
    ) -> Outcome:
        name, message, trace = type(error).__name__, _message(error), _traceback(error)
        kind, delay_us = self._verdict(assignment, handler, error)
        record["outcome"] = _ENDINGS.get(type(error), Ending.FAILED)
        record["error"] = {"type": name, "message": message, "traceback": trace}
        if kind == "retrying":
            record["retry_delay"] = delay_us / 1_000_000
        if self.log.lines:
            record["logs"] = list(self.log.lines)
        summary = _dump({"type": name, "message": message[:300]})
        payload = base64.b64encode(zlib.compress(trace.encode("utf-8", "backslashreplace")))
        return Outcome(assignment.number, kind, delay_us, _dump(record), summary, payload, run_us, name)

    def _verdict(self, assignment: Assignment, handler: Handler | None, error: BaseException) -> tuple[str, int]:
        """What becomes of the task, in the words of `report.lua`, and the delay before its next attempt."""
        if isinstance(error, TaskCancelled):
            return "cancelled", 0
        if isinstance(error, FINAL) or (handler and isinstance(error, handler.give_up_on)):
            return "failed", 0
        delay = self._policy(handler, assignment).delay(assignment.failures + 1, self.random)
        if delay is None:
            return "failed", 0
        return "retrying", to_us(error.delay if isinstance(error, RetryLater) else delay)

    def _policy(self, handler: Handler | None, assignment: Assignment) -> RetryPolicy:
        """The general policy, changed by the type, changed by the task."""
        policy = self.policy.override(handler.retry if handler else None)
        try:
            return policy.override(_parsed(assignment.retry, "retry policy"))
        except (ValueError, TypeError) as error:
            logging.getLogger(__name__).error("task %s: its retry policy is damaged: %s", assignment.id.decode(), error)
            return policy

    # --- being stopped ---

    def _on_time_limit(self, signum: int, frame: FrameType | None) -> None:
        # The signal may arrive when the task that it was meant for has ended: then the next one has not run so long.
        if self.interruptible and time.monotonic_ns() // 1000 - self.started_us >= self.limit_us:
            self.interruptible = False
            raise TimeLimitExceeded(f"it ran longer than its time limit of {self.limit_us / 1_000_000:g} s")

    def _on_cancel(self, signum: int, frame: FrameType | None) -> None:
        if self.interruptible:
            self.interruptible = False
            raise TaskCancelled("somebody cancelled the task while it ran")

    # --- news ---

    def _send(self, value: tuple[Any, ...]) -> None:
        data = channel.frame(value)
        written = os.write(self.ends.news, data)
        while written < len(data):
            written += os.write(self.ends.news, data[written:])

    def _send_log(self, line: str) -> None:
        self._send((channel.LOG, self.number, line))

    def _send_progress(self, fraction: float, message: str) -> None:
        now = time.monotonic()
        if fraction < 1 and now - self.progress_sent < _PROGRESS_INTERVAL:
            return
        self.progress_sent = now
        self._send((channel.PROGRESS, self.number, _dump({"fraction": fraction, "message": message})))


_NULL = base64.b64encode(b"null")
_ENDINGS = {TimeLimitExceeded: Ending.TIMED_OUT, TaskCancelled: Ending.CANCELLED}


def _parsed(text: bytes, what: str) -> dict[str, Any]:
    """A JSON object out of the record; empty when there is none. Raises CorruptRecord."""
    if not text:
        return {}
    try:
        value = json.loads(text)
    except ValueError as error:
        raise CorruptRecord(f"the record's {what} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise CorruptRecord(f"the record's {what} is no JSON object")
    return value


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _message(error: BaseException) -> str:
    try:
        return (str(error) or type(error).__name__)[:_LONGEST_MESSAGE]
    except Exception as broken:
        return f"(its text cannot be made: {type(broken).__name__})"


def _traceback(error: BaseException) -> str:
    """The end of the traceback, without the frames of this file."""
    frame = error.__traceback__
    while frame and frame.tb_frame.f_code.co_filename == __file__:
        frame = frame.tb_next
    try:
        text = "".join(traceback.format_exception(type(error), error, frame))
    except Exception:
        text = f"{type(error).__name__}: {_message(error)}"
    return text if len(text) <= _LONGEST_TRACEBACK else f"...\n{text[-_LONGEST_TRACEBACK:]}"


def _explain(error: ValidationError) -> str:
    """Each mistake with its place in the data."""
    lines = [
        f"{'.'.join(map(str, item['loc'])) or 'data'}: {item['msg']}"
        for item in error.errors(include_url=False, include_input=False)
    ]
    return "; ".join(lines[:10])


def _hello(handlers: dict[str, Handler]) -> tuple[str, bytes]:
    return channel.HELLO, _dump([asdict(handler.published()) for handler in handlers.values()])


def main(arguments: list[str]) -> int:
    """`python -m worker.executor WORKER PARENT-PID FD,FD,FD`; started by the worker only."""
    worker, parent, ends = arguments[0], int(arguments[1]), ExecutorEnds.from_argument(arguments[2])
    die_with_parent(parent)
    # The terminal's Ctrl-C and a service manager's SIGTERM are the worker's business.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    settings = load()
    logs.configure("worker", settings.log_level)
    try:
        handlers = registry.load(settings.task_modules).handlers
    except HandlerError as error:
        print(error, file=sys.stderr)
        return 2
    executor = Executor(handlers, settings, worker, ends)
    logging.getLogger().addHandler(executor.log)
    executor.run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
