"""Communication between a worker and its executors: three pipes each.

- *tasks*, to the executor: frames with tasks in the order in which they are to run.
- *start tokens*, to the executor: four bytes per task, its number. An executor begins a task only after it has read its
  token. The worker keeps the reading end open too, so it can revoke tokens: the kernel gives each token to exactly one
  reader, which makes "has it begun?" a question with one answer, without locks.
- *events*, from the executor: frames with outcomes, progress, log lines and spans, written at once, so that a crash
  loses only the task that ran.

A frame is a header and a value in Python's own marshal format: both ends are the same interpreter, and data of callers
is inside only as bytes. The header is a fixed mark, the length and a checksum, so bytes that a handler wrote into the
pipe are detected on arrival: the reader neither waits for their supposed length nor unmarshals them.
"""

from __future__ import annotations

import contextlib
import fcntl
import marshal
import os
import select
import signal
import struct
import termios
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple
from zlib import crc32

_HEADER = struct.Struct("<4sII")
_MARK = b"\xf1tq\x01"
"""The first bytes of each frame: they never occur in UTF-8."""
MOST_BYTES = 64 << 20
"""The longest frame, without the settings' allowance for results and log lines."""
START_TOKEN_BYTES = 4
_IDLE_MS = 1
"""Milliseconds without a start token after which an executor is idle: a worker under load sends the next one sooner."""
_PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031


class Assignment(NamedTuple):
    """A task assigned to an executor. Times in microseconds; `limit` in seconds.

    `data` is as stored (`firmq.shared.domain.task_data`); local mode gives plain JSON.
    `parent_results` are the parents' results from the claim (JSON, empty for none); `rq_job` is the claim's part of an
    RQ job. `token` is the lease's, in this `store`.
    """

    number: int
    id: bytes
    type: bytes
    data: bytes
    attempt: int
    failures: int
    retry: bytes
    meta: bytes
    enqueued_us: int
    limit: float
    queue: bytes = b""
    parent_results: bytes = b""
    rq_job: tuple[Any, ...] = ()
    token: str = ""
    store: int = 0


class EndedAttempt(NamedTuple):
    """How an attempt ended. The worker passes all fields that are not None to `report.lua`, but for `LOCAL`."""

    outcome: str
    """A value of `Outcome`."""
    state: str
    """The next state of the task, a value of `TaskState`."""
    record: bytes
    """The attempt for the record of the task (JSON)."""
    number: int = 0
    """Of its assignment to an executor."""
    run_us: int = 0
    error_type: str = ""
    error: bytes | None = None
    """The error for the record of the task (JSON), unless it completed."""
    result: bytes | None = None
    """Of a completed task, for RQ's tools: base64 of JSON."""
    traceback: bytes | None = None
    """Of a task that has failed, for RQ's tools: base64 of the compressed text."""
    delay_us: int | None = None
    """How long a retry waits."""
    due_us: int | None = None
    """When a suspended task runs again, since 1970."""
    awaits: str | None = None
    """What a suspended task waits for: `sleep STEP`, `signal NAME` or `children GROUP`; empty if it runs at once."""
    enqueued_us: int | None = None
    """When an interrupted task was enqueued, since 1970: it returns to that place; None to return to the front."""
    losses: int | None = None
    """Of an interrupted task: how many workers in a row have been lost or stopped soon after it began."""
    suspicions: int | None = None
    """Of an interrupted task: how many executors have died that ran it beside others."""
    version: str | None = None
    """The version of the type that refused the data; None if the executor lacks the type."""
    rq_job_end: bytes | None = None
    """Of a task that was made of an RQ job and completed: the job's end (`worker/features/rq/job_end.py`)."""


LOCAL = frozenset({"number", "run_us", "error_type"})
"""Fields of `EndedAttempt` that only the worker reads."""


TIME_LIMIT_SIGNAL = signal.SIGUSR1
CANCEL_SIGNAL = signal.SIGUSR2

SERIAL, CONCURRENT = "serial", "concurrent"
"""The kinds of executors: one attempt at a time, or many."""

HELLO, OUTCOME, PROGRESS, LOG, SPAN = "hello", "outcome", "progress", "log", "span"
LEFT = "left"
"""After an outcome: the handler's leftovers, and whether the executor therefore ends."""
STOPPED = "stopped"
"""In place of an outcome: the attempt was stopped because its executor has to end."""
BLOCKED = "blocked"
"""An attempt keeps the event loop from the others: its number and handler (0 and "": unknown), for how many seconds,
where, and the stack."""
FREED = "freed"
"""In place of an outcome: the attempt was stopped because it blocked the event loop."""
STUCK = "stuck"
"""The attempt ignored the request to stop, so only the end of this executor ends it."""

CANCEL, ABANDON, STOP, PING = "cancel", "abandon", "stop", "ping"
"""Commands to a concurrent executor: cancel the attempt of a number; stop the one whose lease was lost; stop all,
because the worker stops; answer."""
PONG = "pong"
"""The answer to a ping: the event loop turns."""


@dataclass(frozen=True, slots=True)
class ExecutorEnds:
    """The file descriptors that an executor inherits."""

    tasks: int
    start_tokens: int
    events: int

    def as_argument(self) -> str:
        return f"{self.tasks},{self.start_tokens},{self.events}"

    @staticmethod
    def from_argument(text: str) -> ExecutorEnds:
        """Returns the files of this process; programs that handlers start do not inherit them."""
        ends = [*map(int, text.split(","))]
        for each in ends:
            os.set_inheritable(each, False)
        return ExecutorEnds(*ends)


class CorruptFrame(ValueError):
    """The stream of frames holds foreign bytes."""


def frame(value: tuple[Any, ...]) -> bytes:
    """Returns a value with its header in front."""
    body = marshal.dumps(value)
    return _HEADER.pack(_MARK, len(body), crc32(body)) + body


class FrameReader:
    """Splits a stream of bytes into frames of at most `most` bytes."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self.most = most
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[Any, ...]]:
        """Yields the complete frames so far; keeps the rest for the next call. Raises CorruptFrame."""
        self._buffer += data
        at, buffer, size = 0, self._buffer, len(self._buffer)
        while at + _HEADER.size <= size:
            mark, length, checksum = _HEADER.unpack_from(buffer, at)
            if mark != _MARK or length > self.most:
                raise _no_frame(mark, length, self.most)
            begin = at + _HEADER.size
            end = begin + length
            if end > size:
                break
            body = buffer[begin:end]
            if crc32(body) != checksum:
                raise _changed()
            yield marshal.loads(body)  # noqa: S302  # written by our own executor
            at = end
        if at < size and buffer[at : at + len(_MARK)] != _MARK[: size - at]:
            raise _no_frame(b"", 0, self.most)
        del buffer[:at]


def write(fd: int, data: bytes) -> None:
    """Writes all of it to a blocking file."""
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, data[written:])


def read_frame(file: BinaryIO) -> Any:
    """Returns the next frame from a blocking file, or None at its end. Raises CorruptFrame."""
    head = file.read(_HEADER.size)
    if len(head) < _HEADER.size:
        return None
    mark, length, checksum = _HEADER.unpack(head)
    if mark != _MARK:
        raise _no_frame(mark, length, MOST_BYTES)
    body = file.read(length)
    if crc32(body) != checksum:
        raise _changed()
    return marshal.loads(body)  # noqa: S302  # written by our own worker


def _changed() -> CorruptFrame:
    return CorruptFrame("a frame with a wrong checksum")


def _no_frame(mark: bytes, length: int, most: int) -> CorruptFrame:
    if mark != _MARK:
        return CorruptFrame("bytes that do not form a frame")
    return CorruptFrame(f"a frame of {length} bytes exceeds the maximum of {most}")


def start_tokens(numbers: list[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def read_start_tokens(fd: int, may_idle: Callable[[], bool]) -> Iterator[int]:
    """Yields start tokens in the executor, one after another, until the worker closes the pipe.

    The pipe does not block, because both sides read from it and only one gets each token. When none came for a moment,
    `may_idle` can end it.
    """
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while True:
        try:
            token = os.read(fd, START_TOKEN_BYTES)
        except BlockingIOError:
            if not poll.poll(_IDLE_MS):
                if not may_idle():
                    return
                poll.poll()
            continue
        if not token:
            return
        yield int.from_bytes(token, "little")


def revoke_start_tokens(fd: int, most: int) -> list[int]:
    """Returns the start tokens that the executor has not read yet; called by the worker."""
    try:
        data = os.read(fd, most * START_TOKEN_BYTES)
    except BlockingIOError:
        return []
    return list(struct.unpack(f"<{len(data) // START_TOKEN_BYTES}I", data))


def unread_bytes(fd: int) -> int:
    """Returns how many bytes wait in a pipe."""
    answer = fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4)
    return int.from_bytes(answer, "little")


def wide_pipe() -> tuple[int, int]:
    """Returns a pipe with a large buffer where the system allows it."""
    reader, writer = os.pipe()
    with contextlib.suppress(OSError):  # not Linux, or the user's quota of pipe pages is used up: less works too
        fcntl.fcntl(writer, _F_SETPIPE_SZ, _PIPE_BYTES)
    return reader, writer
