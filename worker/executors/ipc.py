"""How a worker and its executors talk: three pipes each.

- *tasks*, to the executor: frames with tasks in the order in which they are to run.
- *tickets*, to the executor: four bytes per task, its number. An executor begins a task only after it has read its
  ticket. The worker keeps the reading end open too, so it can take tickets back: the kernel gives each ticket to
  exactly one reader, which makes "has it begun?" a question with one answer, without locks.
- *news*, from the executor: frames with outcomes, progress, log lines and spans, each written at once, so that a crash
  takes nothing with it but the task that ran.

A frame is a header and a value in Python's own marshal format: both ends are the same interpreter, and nothing that a
caller sent is inside but bytes. The header is a fixed mark, the length and a checksum, so bytes that a handler wrote
into the pipe are an error when they arrive: the reader neither waits for a length that they spell nor unmarshals them.
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
"""The first bytes of each frame: no text in UTF-8 has them."""
MOST_BYTES = 64 << 20
"""The longest frame, beside what the settings allow for results and log lines."""
START_TOKEN_BYTES = 4
_IDLE_MS = 1
"""Milliseconds without a ticket after which an executor is idle: a worker under load sends the next one sooner."""
_PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031


class Assignment(NamedTuple):
    """A task as it is handed to an executor. Times in microseconds; `limit` in seconds.

    `parent_results` is what the claim told of the tasks that it waited for (JSON, empty for none).
    """

    number: int
    id: bytes
    type: bytes
    call: bytes
    attempt: int
    failures: int
    retry: bytes
    meta: bytes
    enqueued_us: int
    limit: float
    queue: bytes = b""
    parent_results: bytes = b""


class Outcome(NamedTuple):
    """How a task ended, in the words of `report.lua`: what the worker passes on without reading it."""

    number: int
    kind: str
    delay_us: int
    record: bytes
    error: bytes
    payload: bytes
    run_us: int
    error_type: str
    version: str = ""
    """Which version of the type refused the data."""


TIME_LIMIT_SIGNAL = signal.SIGUSR1
CANCEL_SIGNAL = signal.SIGUSR2

HELLO, OUTCOME, PROGRESS, LOG, SPAN = "hello", "outcome", "progress", "log", "span"
LEFT = "left"
"""After an outcome: what the handler left behind, and whether the executor ends for it instead of running another."""


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
        return ExecutorEnds(*map(int, text.split(",")))


class CorruptFrame(ValueError):
    """The stream of frames holds bytes that no `frame` wrote."""


def frame(value: tuple[Any, ...]) -> bytes:
    """A value with its header in front."""
    body = marshal.dumps(value)
    return _HEADER.pack(_MARK, len(body), crc32(body)) + body


class FrameReader:
    """Cuts a stream of bytes into frames of at most `most` bytes."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self.most = most
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[Any, ...]]:
        """The complete frames so far; the rest is kept for the next time. Raises CorruptFrame."""
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


def read_frame(file: BinaryIO) -> Any:
    """The next frame from a blocking file, or None at its end. Raises CorruptFrame."""
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
    return CorruptFrame("a frame that was changed on its way")


def _no_frame(mark: bytes, length: int, most: int) -> CorruptFrame:
    if mark != _MARK:
        return CorruptFrame("bytes that are no frame")
    return CorruptFrame(f"a frame of {length} bytes, {most} is the most")


def start_tokens(numbers: list[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def read_start_tokens(fd: int, may_idle: Callable[[], bool]) -> Iterator[int]:
    """The executor's side: one ticket after the other, until the worker closes the pipe.

    The pipe does not block, because both sides read from it and only one gets each ticket. When none came for a
    moment, `may_idle` can end it.
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
    """The worker's side: the tickets that the executor has not read yet."""
    try:
        data = os.read(fd, most * START_TOKEN_BYTES)
    except BlockingIOError:
        return []
    return list(struct.unpack(f"<{len(data) // START_TOKEN_BYTES}I", data))


def unread_bytes(fd: int) -> int:
    """How many bytes wait in a pipe."""
    answer = fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4)
    return int.from_bytes(answer, "little")


def wide_pipe() -> tuple[int, int]:
    """A pipe with room for many frames where the system allows it."""
    reader, writer = os.pipe()
    with contextlib.suppress(OSError):  # not Linux, or the user's quota of pipe pages is used up: less works too
        fcntl.fcntl(writer, _F_SETPIPE_SZ, _PIPE_BYTES)
    return reader, writer
