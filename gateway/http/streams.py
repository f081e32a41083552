"""Requests that are answered while they arrive: their connection leaves the loop of `server.py` and gets a thread.

The thread reads from the socket only when the app wants more, so a sender that is faster than Redis is held up by TCP,
and nothing grows. It writes what the app answers as soon as the other side takes it; a sender that reads nothing until
it has sent all is given eight megabytes of patience. There are a few such threads and no more: streams are for bulk. A
sender who keeps one waiting may do so while nobody else wants it; when somebody does, the slowest is told to send the
rest later. The app asks for a place once it knows that the sender may send, so strangers take none and move nobody.
"""

from __future__ import annotations

import logging
import re
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from gateway.http import errors
from gateway.http.errors import Refusal
from gateway.http.ndjson import PATIENCE

log = logging.getLogger(__name__)

MOST = 4
"""Streams of a process at a time; who comes when they are taken is told to come again."""
MOST_WAITING = 32
"""Connections of a process that may be told so at the same time."""
MOST_LINGERING = 32
"""Those without a place that have their answer, and may send on until they see it; more of them are cut off."""
UNREAD = 8 << 20
"""Bytes of answers that wait for a sender who does not read."""
LINGER = 5.0
SLOW_AFTER = 5.0
"""Seconds after which a stream counts as slow when most of them were spent waiting for its sender."""
ROOM_WITHIN = 2.0
"""Seconds in which a slow stream that is told to leave has left."""
_LOOK = 0.25
_RECEIVE = 64 << 10
_LONGEST_CHUNK_LINE = 256
_MOST_TRAILERS = 16
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,8}")

Environ = dict[str, Any]
App = Callable[[Environ, Callable[..., object]], Iterable[bytes]]


class Connection:
    """A socket that is read and written by turns in one thread: whoever waits to read writes what is due meanwhile."""

    def __init__(self, sock: socket.socket, received: bytes) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.received = received
        self.due: deque[memoryview] = deque()
        self.size = 0
        self.begun = time.monotonic()
        self._waited = 0.0
        self._waits_since: float | None = None
        self.placed = False
        """It was given a place."""
        self.leaves = False
        """Somebody else wants its place."""

    @property
    def slow(self) -> bool:
        """Most of its time was spent waiting for the other side."""
        age = time.monotonic() - self.begun
        return age > SLOW_AFTER and self.waited > 0.9 * age

    @property
    def waited(self) -> float:
        """Seconds of waiting for the other side until now."""
        since = self._waits_since
        return self._waited + (time.monotonic() - since if since is not None else 0.0)

    def here(self) -> bool:
        """Whether something can be read without waiting."""
        if self.received:
            return True
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return bool(poll.poll(0))

    def receive(self, until: float | None = None) -> bytes:
        """What has arrived; b"" at the end. Raises OSError when nobody is there, Refusal when nothing comes in time.

        The time is over at `until`, or else when patience with what is to come now is.
        """
        if self.received:
            data, self.received = self.received, b""
            return data
        until = time.monotonic() + PATIENCE if until is None else until
        try:
            while not self._wait(until - time.monotonic(), read=True)[0]:
                pass
        except TimeoutError:
            raise Refusal(errors.TOO_SLOW, f"too little came in {PATIENCE:g} seconds: send the rest again") from None
        except _Leaves:
            text = "others want to send, and this stream is slow: send the rest again in a moment"
            raise Refusal(errors.BUSY, text, retry_after=errors.RETRY_AFTER) from None
        return self.sock.recv(_RECEIVE)

    def send(self, data: bytes) -> None:
        """Puts data in line and writes what the other side takes. Raises OSError as `receive` does."""
        if data:
            self.due.append(memoryview(data))
            self.size += len(data)
        self._write()
        while self.size > UNREAD:
            self._wait(PATIENCE)

    def finish(self, whole: bool) -> None:
        """Writes the rest. When not all was read, it reads on for a while: else the other side would see a reset."""
        while self.due:
            self._wait(PATIENCE)
        self.sock.shutdown(socket.SHUT_WR)
        until = time.monotonic() + LINGER
        while not whole and (left := until - time.monotonic()) > 0:
            readable, _ = self._wait(left, read=True)
            if readable and not self.sock.recv(_RECEIVE):
                return

    def _wait(self, seconds: float, read: bool = False) -> tuple[bool, bool]:
        poll = select.poll()
        poll.register(self.sock, (select.POLLIN if read else 0) | (select.POLLOUT if self.due else 0))
        self._waits_since = begun = time.monotonic()
        try:
            found = self._poll(poll, begun + seconds)
        finally:
            self._waits_since = None
            self._waited += time.monotonic() - begun
        if found & select.POLLOUT:
            self._write()
        if found & (select.POLLERR | select.POLLHUP) and not found & select.POLLIN:
            raise ConnectionResetError("the other side is gone")
        return bool(found & select.POLLIN), bool(found & select.POLLOUT)

    def _poll(self, poll: select.poll, end: float) -> int:
        while not (events := poll.poll(max(0.0, min(_LOOK, end - time.monotonic())) * 1000)):
            if self.leaves:
                raise _Leaves("somebody else wants its place")
            if time.monotonic() >= end:
                raise TimeoutError("the other side neither sends nor reads")
        return events[0][1]

    def _write(self) -> None:
        while self.due:
            try:
                sent = self.sock.send(self.due[0])
            except BlockingIOError:
                return
            self.size -= sent
            if sent == len(self.due[0]):
                self.due.popleft()
            else:
                self.due[0] = self.due[0][sent:]


class _Leaves(OSError):
    """This stream is to leave its place to another one."""


class Body:
    """The body of a request, of a known length or in chunks; `read` gives what is there, b"" at its end."""

    def __init__(self, connection: Connection, length: int | None) -> None:
        self.connection = connection
        self.chunked = length is None
        self.left = length or 0
        self.ended = length == 0
        self.buffer = b""

    def here(self) -> bool:
        """Whether there is something to read without waiting for the sender."""
        return not self.ended and bool(self.buffer or self.connection.here())

    def read(self, size: int = -1) -> bytes:
        """Raises OSError when it is cut off, and Refusal when it cannot be read or nothing comes in time."""
        while not self.ended and not self.left:
            self._next_chunk()
        if self.ended:
            return b""
        data = self.buffer or self._receive()
        most = self.left if size < 0 else min(size, self.left)
        self.buffer, data = data[most:], data[:most]
        self.left -= len(data)
        if self.chunked and not self.left:
            if self._take_line(time.monotonic() + PATIENCE):
                raise _unreadable("a chunk is longer than it says")
        elif not self.left:
            self.ended = True
        return data

    def _next_chunk(self) -> None:
        """Its size, or the end with what follows there: all of it within one patience, and not much of it."""
        until = time.monotonic() + PATIENCE
        size = self._take_line(until).partition(b";")[0]
        if not _CHUNK_SIZE.fullmatch(size):
            raise _unreadable("the size of a chunk must be one to eight hexadecimal digits")
        self.left = int(size, 16)
        if not self.left:
            # Trailers mean nothing here.
            if all(self._take_line(until) for _ in range(_MOST_TRAILERS + 1)):
                raise _unreadable(f"more than {_MOST_TRAILERS} trailers follow its last chunk")
            self.ended = True

    def _take_line(self, until: float) -> bytes:
        while (end := self.buffer.find(b"\r\n")) < 0 and len(self.buffer) <= _LONGEST_CHUNK_LINE:
            self.buffer += self._receive(until)
        if not 0 <= end <= _LONGEST_CHUNK_LINE:
            raise _unreadable("a line beside the chunks is too long")
        line, self.buffer = self.buffer[:end], self.buffer[end + 2 :]
        return line

    def _receive(self, until: float | None = None) -> bytes:
        data = self.connection.receive(until)
        if not data:
            raise ConnectionResetError("the body was cut off")
        return data


def _unreadable(what: str) -> Refusal:
    return Refusal(errors.BAD_REQUEST, f"the body cannot be read: {what}")


class Streams:
    """The threads of a process that carry out streams."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.free = threading.BoundedSemaphore(MOST)
        self.lock = threading.Lock()
        self.running = 0
        self.lingering = 0
        self.open: set[Connection] = set()

    def take(self, sock: socket.socket, received: bytes, length: int | None, environ: Environ, go_on: bool) -> None:
        """Carries a request out in a thread of its own; `go_on` when its sender waits to be told to send the body."""
        with self.lock:
            if self.running - self.lingering >= MOST_WAITING:
                sock.close()
                return
            self.running += 1
        stream = (sock, received, length, environ, go_on)
        threading.Thread(target=self._carry_out, args=stream, name="stream", daemon=True).start()

    def _carry_out(
        self, sock: socket.socket, received: bytes, length: int | None, environ: Environ, go_on: bool
    ) -> None:
        connection = Connection(sock, received)
        body = Body(connection, length)
        try:
            with ExitStack() as held:

                def place() -> bool:
                    connection.placed = held.enter_context(self._place(connection))
                    if connection.placed and go_on:
                        with suppress(OSError):  # whoever reads will notice
                            connection.send(b"HTTP/1.1 100 Continue\r\n\r\n")
                    return connection.placed

                environ.update({"wsgi.input": body, "wsgi.input_terminated": True, "taskqueue.place": place})
                self._answer(connection, environ)
            with self._finishing(connection) as may_linger:
                if may_linger:
                    connection.finish(body.ended)
        except OSError as error:
            log.info("a stream was cut off", extra={"reason": str(error)})
        except Exception:
            log.exception("a stream failed")
        finally:
            sock.close()
            with self.lock:
                self.running -= 1

    @contextmanager
    def _place(self, connection: Connection) -> Iterator[bool]:
        """A place among those that are answered, and whether there is one."""
        if not (self.free.acquire(blocking=False) or (self._free_place() and self.free.acquire(timeout=ROOM_WITHIN))):
            yield False
            return
        with self.lock:
            self.open.add(connection)
        try:
            yield True
        finally:
            with self.lock:
                self.open.remove(connection)
                connection.leaves = False
            self.free.release()

    @contextmanager
    def _finishing(self, connection: Connection) -> Iterator[bool]:
        """Whether its end may be waited for. Who had no place does not count among those that wait for one any more."""
        with self.lock:
            granted = connection.placed or self.lingering < MOST_LINGERING
            counted = int(granted and not connection.placed)
            self.lingering += counted
        try:
            yield granted
        finally:
            with self.lock:
                self.lingering -= counted

    def _free_place(self) -> bool:
        """Tells the stream that has waited longest for its sender to leave; whether one is about to."""
        with self.lock:
            slow = [each for each in self.open if each.slow and not each.leaves]
            if slow:
                max(slow, key=lambda each: each.waited).leaves = True
            return any(each.leaves for each in self.open)

    def _answer(self, connection: Connection, environ: Environ) -> None:
        chunked = environ["SERVER_PROTOCOL"] == "HTTP/1.1"

        def start(status: str, headers: list[tuple[str, str]], exc_info: object = None) -> None:
            kept = [(name, value) for name, value in headers if name.lower() not in _OURS]
            kept += [("Connection", "close"), *([("Transfer-Encoding", "chunked")] if chunked else [])]
            lines = "".join(f"{name}: {value}\r\n" for name, value in kept)
            connection.send(f"HTTP/1.1 {status}\r\n{lines}\r\n".encode("latin-1"))

        parts = self.app(environ, start)
        try:
            for part in parts:
                if part:
                    connection.send(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
        finally:
            close = getattr(parts, "close", None)
            if close:
                close()
        if chunked:
            connection.send(b"0\r\n\r\n")


_OURS: Mapping[str, None] = dict.fromkeys(("connection", "transfer-encoding", "content-length"))
