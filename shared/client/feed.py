"""A batch on its way: its tasks leave as lines while the answers to earlier ones are read, and nothing grows.

Whoever sends all before reading needs memory for every answer, or makes the gateway need it. This holds only what has
no answer yet, `WINDOW` lines at most, and sends while there is nothing to read. Tasks are made in the thread of the
caller, as a cursor of a database may be used in no other; a thread beside it lets lines leave while the next is made.
When the connection is cut it goes on from the first task without an answer, under the same Idempotency-Key, so nothing
is stored twice.
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
"""Tasks sent and not answered."""
PIECE = 64 << 10
"""Bytes of lines that leave together."""
GATHER = 0.002
"""Seconds after which lines leave without waiting for more: those that are made slowly leave one by one."""
LINES = "application/x-ndjson"
_READ = 1 << 16


class BatchFeed(Sending):
    """A batch that is sent, at once or by iterating over it: gives what became of each task, in their order.

    `batch_id` is known from the first answer on; `accepted` and `refused` count as it goes. When what makes the tasks
    raises, those before it are kept, the batch is closed with them, and then the error is raised, with a note of that.
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
        # Begun here: it refers to this object, and one that is dropped unsent should be gone at once, and say so.
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
        # A stream on which nothing comes is cut; what makes the tasks may take longer than that.
        if not self._unsent:
            self._unsent.extend(islice(self._lines, 1))
        if self._broken and not self._unsent and self.batch_id is None:
            raise self._broken

    def _go_back(self, lost: Exception, wait: float | None) -> None:
        """To the first task without an answer, after a pause; raises what went wrong when there is no time for one."""
        self._unsent.extendleft(reversed(self._unanswered))
        self._unanswered.clear()
        if not self._patience.pause(wait):
            error = lost if isinstance(lost, Problem) else self.transport.unreachable(lost)
            error.add_note(
                f"{self.accepted} tasks of this batch were accepted before; sent again with "
                f"idempotency_key={self.key!r}, in full, none is stored twice"
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
            f"batch {self.batch_id} was closed with the {self.accepted} tasks that were accepted before this; sent "
            f"again with idempotency_key={self.key!r}, in full, it goes on behind them"
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
        # Read below http.client, which would wait for the next chunk as soon as it has this one.
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
        """Sends the next lines, many when they are made quickly; whether there may be more."""
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
    """Lines on their way out of one connection: they leave together, or after `GATHER` from a thread of its own.

    That thread sends only what was added and not flushed, so outside `add` and `flush` the socket is the caller's.
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
        """The next one may take its time to be made."""
        with self._changed:
            if not self._lines:
                self._due = time.monotonic() + GATHER
                self._changed.notify()
            self._lines.append(line)

    def flush(self) -> bool:
        """All leaves now; False when it was refused before all of it was read: why is in the answer."""
        with self._changed:
            self._leave()
        if self._lost is None:
            return True
        if isinstance(self._lost, BrokenPipeError | ConnectionResetError):
            return False
        raise self._lost

    def end(self) -> bool:
        """Ends the request; there is no more."""
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
    """Whether something came together with the headers, and waits where the socket does not know of it."""
    timeout = sock.gettimeout()
    sock.settimeout(0)
    try:
        return bool(source.peek(1))
    except ssl.SSLWantReadError:
        return False
    finally:
        sock.settimeout(timeout)


class _Chunks:
    """What a body in chunks holds, from whatever has come of it."""

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
    """Of the chunk that begins; the line is empty at the end of one."""
    try:
        return int(line.partition(b";")[0], 16) if line else 0
    except ValueError:
        raise HTTPException("the chunks of the answer cannot be read") from None


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
