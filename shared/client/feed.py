"""Sends a batch as a stream of lines and reads the responses meanwhile, in constant memory.

Only tasks without a response are kept, at most `WINDOW` lines; lines are sent while there is nothing to read. Tasks are
produced in the caller's thread, because a database cursor may not be used in another; a second thread sends lines while
the next task is produced. After a lost connection, sending resumes at the first task without a response, under the same
Idempotency-Key, so nothing is stored twice.
"""

from __future__ import annotations

import json
import select
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from io import BufferedReader
from itertools import islice
from typing import Any

from shared.client.answers import BatchItem, read
from shared.client.problems import Problem, problem
from shared.client.sending import Sending
from shared.client.transport import LOST, Transport, may_pass, opened, read_document

WINDOW = 4000
"""Maximum tasks sent without a response."""
PIECE = 64 << 10
"""Bytes of lines that are sent together."""
GATHER = 0.002
"""Seconds after which lines are sent without waiting for more."""
LINES = "application/x-ndjson"
_READ = 1 << 16


class BatchFeed(Sending):
    """A batch that is sent at once or while iterated over; yields the outcome of each task, in order.

    `batch_id` is set from the first response on; `accepted` and `refused` count outcomes. When the iterable of tasks
    raises, the tasks before are kept and the batch is closed; then the error is raised with a note.
    """

    def __init__(
        self, transport: Transport, tasks: Iterable[Mapping[str, Any]], terms: Mapping[str, Any], key: str
    ) -> None:
        self.transport = transport
        self.key = key
        self.accepted = 0
        self.refused = 0
        self.complete = False
        self._head = _line({"batch": terms})
        self._tasks = tasks
        self._lines: Iterator[bytes] = iter(())
        self._broken: Exception | None = None
        self._unsent: deque[bytes] = deque()
        self._unanswered: deque[bytes] = deque()
        self._patience = transport.patience(lasting=True)

    def results(self) -> Iterator[BatchItem]:
        self._patience.renew()
        # Created here because it refers to this object: an unsent feed must be freed, and warn, immediately.
        self._lines = self._made(self._tasks)
        while not self.complete:
            self._wait_for_a_line()
            lost: Exception = ConnectionResetError("the answer was cut off")
            wait = None
            try:
                yield from self._stream()
            except Problem as refusal:
                if not may_pass(refusal):
                    raise
                lost, wait = refusal, refusal.document.get("retry_after")
            except LOST as error:
                lost = error
            if not self.complete:
                self._go_back(lost, wait)
        if self._broken:
            raise self._with_batch(self._broken)

    def _wait_for_a_line(self) -> None:
        # The gateway aborts a silent stream, and the iterable of tasks may be slower than that.
        if not self._unsent:
            self._unsent.extend(islice(self._lines, 1))
        if self._broken and not self._unsent and self.batch_id is None:
            raise self._broken

    def _go_back(self, lost: Exception, wait: float | None) -> None:
        """Returns to the first task without a response, after a pause. Raises the error when patience is used up."""
        self._unsent.extendleft(reversed(self._unanswered))
        self._unanswered.clear()
        if not self._patience.pause(wait):
            error = lost if isinstance(lost, Problem) else self.transport.unreachable(lost)
            error.add_note(
                f"{self.accepted} tasks of this batch were accepted before; resend the whole batch with "
                f"idempotency_key={self.key!r} to store none twice"
            )
            raise error from lost

    # --- lines ---

    def _made(self, tasks: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
        try:
            for task in tasks:
                yield _line(task)
        except Exception as error:
            self._broken = error

    def _with_batch(self, error: Exception) -> Exception:
        error.add_note(
            f"batch {self.batch_id} was closed with the {self.accepted} tasks accepted before this error; resend the "
            f"whole batch with idempotency_key={self.key!r} to continue after them"
        )
        return error

    # --- one connection ---

    def _stream(self) -> Iterator[BatchItem]:
        connection = self.transport.connect(self.transport.timeout)
        try:
            self._begin(connection)
            with _Outbox(connection.sock) as outbox:
                more = True
                while more and len(self._unanswered) < WINDOW and not _readable(outbox.sock):
                    more = self._send(outbox)
                with opened(connection.getresponse(), LINES) as response:
                    yield from self._converse(outbox, response, more)
        finally:
            connection.close()

    def _converse(self, outbox: _Outbox, response: HTTPResponse, more: bool) -> Iterator[BatchItem]:
        # Bypasses http.client, which would wait for the next chunk after reading this one.
        source, chunks, rest = response.fp, _Chunks(response.chunked), b""
        buffered = _buffered(outbox.sock, source)
        while not self.complete:
            if more and len(self._unanswered) < WINDOW and not buffered and not _readable(outbox.sock):
                more = self._send(outbox)
                continue
            data, buffered = source.read1(_READ), False
            if not data:
                return
            *lines, rest = (rest + chunks.take(data)).split(b"\n")
            for line in lines:
                yield from self._take(read_document(line))

    def _begin(self, connection: HTTPConnection) -> None:
        answered = self.accepted + self.refused
        connection.putrequest("POST", self.transport.target("/tasks/batch", {"start": answered or None}))
        headers = {**self.transport.headers, "Content-Type": LINES, "Idempotency-Key": self.key}
        for name, value in {**headers, "Transfer-Encoding": "chunked"}.items():
            connection.putheader(name, value)
        connection.endheaders()
        connection.send(_chunk(self._head))

    def _send(self, outbox: _Outbox) -> bool:
        """Sends the next lines, several when they are produced quickly. Returns whether there may be more."""
        size, until = 0, time.monotonic() + GATHER
        while size < PIECE and (not size or time.monotonic() < until):
            line = self._unsent.popleft() if self._unsent else next(self._lines, None)
            if line is None:
                return outbox.flush() and outbox.end()
            self._unanswered.append(line)
            outbox.add(line)
            size += len(line)
        return outbox.flush()

    def _take(self, said: Mapping[str, Any]) -> Iterator[BatchItem]:
        refused = said.get("problem")
        if refused and ("index" not in said or refused["status"] == 503):
            raise problem(refused["status"], refused)
        if "index" in said:
            self._unanswered.popleft()
            self._patience.renew()
            item = read(BatchItem, said)
            self.accepted += item.accepted
            self.refused += not item.accepted
            yield item
        self.batch_id = said.get("batch_id", self.batch_id)
        self.complete = said.get("complete", False)


class _Outbox:
    """Buffers lines for one connection and sends them together, or after `GATHER` seconds from its own thread.

    That thread sends only lines that were added and not flushed; otherwise the socket belongs to the caller.
    """

    def __init__(self, sock: Any) -> None:
        self.sock = sock
        self._lines: list[bytes] = []
        self._due = 0.0
        self._open = True
        self._lost: OSError | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._send_what_is_due, name="batch outbox", daemon=True)

    def __enter__(self) -> _Outbox:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._open = False
            self._changed.notify()
        self._thread.join()

    def add(self, line: bytes) -> None:
        """Adds a line; it is sent after `GATHER` seconds even if no other follows."""
        with self._changed:
            if not self._lines:
                self._due = time.monotonic() + GATHER
                self._changed.notify()
            self._lines.append(line)

    def flush(self) -> bool:
        """Sends all lines. Returns False when the gateway refused the stream early; the response has the reason."""
        with self._changed:
            self._leave()
        if self._lost is None:
            return True
        if isinstance(self._lost, BrokenPipeError | ConnectionResetError):
            return False
        raise self._lost

    def end(self) -> bool:
        """Ends the request. Returns False."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.sock.sendall(_chunk(b""))
        return False

    def _send_what_is_due(self) -> None:
        with self._changed:
            while self._open:
                left = self._due - time.monotonic()
                if not self._lines or left > 0:
                    self._changed.wait(left if self._lines else None)
                else:
                    self._leave()

    def _leave(self) -> None:
        data, self._lines = b"".join(self._lines), []
        try:
            if data and self._lost is None:
                self.sock.sendall(_chunk(data))
        except OSError as error:
            self._lost = error


def _readable(sock: Any) -> bool:
    if getattr(sock, "pending", int)():  # TLS has decrypted something already
        return True
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _buffered(sock: Any, source: BufferedReader) -> bool:
    """Returns whether data that arrived with the headers is buffered, which polling the socket does not show."""
    timeout = sock.gettimeout()
    sock.settimeout(0)
    try:
        return bool(source.peek(1))
    except ssl.SSLWantReadError:
        return False
    finally:
        sock.settimeout(timeout)


class _Chunks:
    """Decodes a chunked body incrementally."""

    def __init__(self, chunked: bool) -> None:
        self.chunked = chunked
        self.left = 0
        self.rest = b""

    def take(self, data: bytes) -> bytes:
        if not self.chunked:
            return data
        data, at, parts = self.rest + data, 0, []
        while at < len(data):
            if not self.left:
                end = data.find(b"\r\n", at)
                if end < 0:
                    break
                self.left, at = _size(data[at:end]), end + 2
            part = data[at : at + self.left]
            parts.append(part)
            self.left -= len(part)
            at += len(part)
        self.rest = data[at:]
        return b"".join(parts)


def _size(line: bytes) -> int:
    """Returns the size of the next chunk; 0 for the empty line after a chunk."""
    try:
        return int(line.partition(b";")[0], 16) if line else 0
    except ValueError:
        raise HTTPException("the chunks of the response cannot be read") from None


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
