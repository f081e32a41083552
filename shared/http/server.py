"""The HTTP server loop: slow clients occupy no thread, and shutdown aborts no request.

gunicorn starts and monitors the processes. In each, one loop reads all sockets, and a request is passed to a thread
when all of it has arrived (waitress). Added here: requests that do not arrive in time are aborted, ambiguous HTTP is
refused, refusals reach clients that are still sending, buffered data is bounded, and a process that is stopping
finishes its requests.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import time
from collections import deque
from typing import Any, ClassVar

from gunicorn.workers.base import Worker
from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.server import TcpWSGIServer
from waitress.task import ErrorTask, WSGITask
from waitress.utilities import BadRequest, Error, RequestEntityTooLarge

from shared.http.bind import raise_file_limit
from shared.http.buffer_budget import BufferBudget

HEADER_BYTES = 32 << 10
LINGER_SECONDS = 5
"""Seconds for which the rest of a refused request is read and discarded."""
HALF_SENT_SECONDS = 2
"""Seconds for which a stopping process waits for incomplete requests."""
FILES_BESIDE = 200
LONGEST_CHUNK_LINE = 256
LONGEST_TRAILERS = 4096
SMALL_ANSWER = 16 << 10
"""Bytes of a response that may wait uncounted for a client that does not read; connections are few enough."""
UNTAKEN_SECONDS = 20
"""Seconds for which a client may read nothing of its response."""
NEARLY_ALL = 0.9
"""Share of the maximum connections above which idle ones are closed."""
_LOOK_SECONDS = 0.05


class Crowded(Error):  # type: ignore[misc]  # waitress has no types
    """The buffer for incoming requests is full."""

    code = 503
    reason = "Service Unavailable"


_FOLDED = re.compile(rb"\r\n[ \t]")


class GunicornWorker(Worker):  # type: ignore[misc]  # gunicorn has no types
    """A gunicorn worker process that runs waitress's loop."""

    server_class: type[Server]
    server: Server | None = None

    def init_signals(self) -> None:
        super().init_signals()
        # Ctrl-C reaches the whole process group; gunicorn's main process stops this one.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGQUIT, self.handle_exit)

    def handle_exit(self, sig: int, frame: object) -> None:
        super().handle_exit(sig, frame)
        if self.server is not None:
            self.server.pull_trigger()

    def init_process(self) -> None:
        logging.getLogger("waitress.queue").setLevel(logging.ERROR)
        super().init_process()

    def run(self) -> None:
        server = self.server = self.server_class(self.wsgi, self.sockets[0].sock, self.cfg.threads)
        while self.alive and self.is_parent_alive():
            server.turn(1.0)
            self.notify()
        delay = self.app.settings.shutdown_delay if self.is_parent_alive() else 0.0
        server.linger(delay)
        self.stopping()
        server.drain(self.cfg.graceful_timeout - delay - 1)

    def stopping(self) -> None:
        """Called at shutdown, before the current requests are finished."""

    def is_parent_alive(self) -> bool:
        """Returns whether gunicorn's main process is alive; without it this process would never be stopped."""
        return bool(self.ppid == os.getppid())


class Parser(HTTPRequestParser):  # type: ignore[misc]  # waitress has no types
    """An incoming request."""

    body_rcv: Any
    chunked: bool
    completed: bool
    content_length: int

    def __init__(self, adj: Adjustments) -> None:
        super().__init__(adj)
        self.expect_continue = False
        self.error: Error | None = None
        self.begun = time.monotonic()

    def parse_header(self, header_plus: bytes) -> None:
        if _FOLDED.search(header_plus):
            raise ParsingError("a header is folded over several lines: send it on one line")
        super().parse_header(header_plus)
        if "TRANSFER_ENCODING" in self.headers:
            # waitress removes it where it is valid, which is in HTTP/1.1 only.
            raise ParsingError("Transfer-Encoding is for HTTP/1.1: send Content-Length, or HTTP/1.1")
        if self.chunked and "CONTENT_LENGTH" in self.headers:
            raise ParsingError("the request has both Content-Length and Transfer-Encoding: send one of them")

    def received(self, data: bytes) -> int:
        consumed: int = super().received(data)
        if self._too_large():
            said = f"the body is larger than {self.adj.max_body} bytes: send less, or raise MAX_BODY_BYTES"
            self._refuse(RequestEntityTooLarge(said))
        elif self._chatty():
            self._refuse(BadRequest("a chunk size line or the trailers are too long: send shorter ones"))
        if self.error is not None:
            self.expect_continue = False
        return consumed

    @property
    def size(self) -> int:
        """Returns the buffered bytes of the request."""
        return len(self.header_plus) + (len(self.body_rcv) if self.body_rcv is not None else 0)

    def give_up(self) -> None:
        """Discards the received part of the request and refuses it."""
        self.expect_continue, self.body_rcv = False, None
        self._refuse(Crowded("the buffer for incoming requests is full: send it again after Retry-After"))

    def _refuse(self, error: Error) -> None:
        self.completed, self.error = True, error

    def _too_large(self) -> bool:
        size = len(self.body_rcv) if self.chunked else self.content_length
        return bool(size > self.adj.max_body)

    def _chatty(self) -> bool:
        """Returns whether chunk size lines or trailers, which are buffered besides the body, are too long."""
        body = self.body_rcv if self.chunked else None
        return body is not None and (
            len(body.control_line) > LONGEST_CHUNK_LINE or len(body.trailer) > LONGEST_TRAILERS
        )


class Refused(ErrorTask):  # type: ignore[misc]  # waitress has no types
    """The refusal of a request that could not be parsed."""

    def execute(self) -> None:
        self.status = f"{self.request.error.code} {self.request.error.reason}"
        self.response_headers.append(("Content-Type", "text/plain; charset=utf-8"))
        if isinstance(self.request.error, Crowded):
            self.response_headers.append(("Retry-After", "1"))
        self.answer(f"{self.request.error.body}\n".encode())

    def answer(self, body: bytes) -> None:
        """Sends the response and closes the connection after it."""
        self.set_close_on_finish()
        self.channel.refused = True
        self.content_length = len(body)
        self.write(body)


class Task(WSGITask):  # type: ignore[misc]  # waitress has no types
    """A request that the app answers; during shutdown its connection closes after the response."""

    def build_response_header(self) -> bytes:
        if self.channel.server.draining:
            self.set_close_on_finish()
        header: bytes = super().build_response_header()
        return header


class Channel(HTTPChannel):  # type: ignore[misc]  # waitress has no types
    """A connection."""

    parser_class = Parser
    error_task_class = Refused
    task_class = Task

    request: Any
    requests: list[Any]
    refused = False
    lingers_until: float | None = None
    kept = 0
    """Bytes of requests counted in the buffer budget."""
    untaken_since: float | None = None
    """Time since which the client has read nothing of its response."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.at_rest_since = time.monotonic()

    @property
    def unread(self) -> int:
        """Returns the bytes of unprocessed requests; 0 when disconnected."""
        if not self.connected:
            return 0
        return sum(each.size for each in (*self.requests, self.request) if each is not None)

    @property
    def busy(self) -> bool:
        """Returns whether a request is being answered."""
        return bool(self.requests or self.total_outbufs_len)

    @property
    def dispensable(self) -> tuple[bool, float]:
        """Returns a sort key; the smallest is closed first: idle connections, then those with the oldest request."""
        return (False, self.at_rest_since) if self.request is None else (True, self.request.begun)

    def late(self, now: float) -> bool:
        """Returns whether a request arrives too slowly, a refused one does not end, or the response is not read."""
        if self.lingers_until is not None:
            return now > self.lingers_until
        if self.total_outbufs_len:
            self.untaken_since = self.untaken_since or now
            return now - self.untaken_since > UNTAKEN_SECONDS
        return self.request is not None and now - self.request.begun > self.server.receive_seconds

    def received(self, data: bytes) -> bool:
        taken = bool(super().received(data))
        # A request that arrives in one piece is processed at once and not counted.
        if self.request is not None or self.kept:
            self.server.unread.count(self)
            self.server.make_room()
        return taken

    def service(self) -> None:
        super().service()
        self.at_rest_since = time.monotonic()
        if self.kept:
            self.server.unread.count(self)
        if self.total_outbufs_len > SMALL_ANSWER:
            self.server.bound_answers()

    def _flush_some(self, do_close: bool = True) -> bool:
        taken = bool(super()._flush_some(do_close))
        if taken:
            self.untaken_since = None
        return taken

    def give_up(self) -> None:
        """Refuses the incomplete request; disconnects a client that has not sent all headers."""
        with self.requests_lock:
            request, self.request = self.request, None
            if request.headers_finished:
                request.give_up()
                self.requests.append(request)
                if len(self.requests) == 1:
                    self.server.add_task(self)
            else:
                self.will_close = True
        self.server.unread.count(self)

    def del_channel(self, map: Any = None) -> None:  # noqa: A002  # as waitress calls it
        super().del_channel(map)
        self.server.unread.forget(self)

    def handle_write(self) -> None:
        if self.refused and self.close_when_flushed and not self.will_close:
            self._flush_exception(self._flush_some)
            if not self.total_outbufs_len:
                self._linger()
        else:
            super().handle_write()

    def _linger(self) -> None:
        """Shuts the sending side down and continues to read for LINGER_SECONDS.

        Closing a connection with unread bytes resets it, and a client that is still sending would not see the refusal.
        """
        self.close_when_flushed = False
        self.lingers_until = time.monotonic() + LINGER_SECONDS
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.will_close = True

    def handle_read(self) -> None:
        if self.lingers_until is None:
            super().handle_read()
            return
        try:
            self.recv(1 << 18)
        except OSError:
            self.handle_close()


class Server(TcpWSGIServer):  # type: ignore[misc]  # waitress has no types
    """The loop that reads and writes all connections of a process. Subclasses set the limits."""

    channel_class: type[Channel] = Channel
    connections: ClassVar[int]
    """Maximum connections, if the limit of open files permits."""
    receive_seconds: ClassVar[float]
    """Time limit for a whole request to arrive, in seconds, regardless of how its bytes arrive."""
    idle_seconds: ClassVar[int]
    """Seconds for which a connection is kept between requests."""
    unread_bodies: ClassVar[int]
    """Maximum bytes of unprocessed requests, all connections together."""
    untaken_answers: ClassVar[int]
    """Maximum bytes of responses that clients have not read, all connections together."""
    draining = False

    def __init__(self, app: Any, listener: socket.socket, threads: int) -> None:
        max_body = app.config["MAX_CONTENT_LENGTH"]
        adj = Adjustments(
            sockets=[listener],
            threads=threads,
            ident=None,
            # Leaves room for files and for connections to Redis.
            connection_limit=max(50, raise_file_limit(self.connections + FILES_BESIDE) - FILES_BESIDE),
            channel_timeout=self.idle_seconds,
            # waitress uses the wall clock; `turn` does the maintenance by the monotonic clock.
            cleanup_interval=1 << 30,
            max_request_header_size=HEADER_BYTES,
            # For a chunked body with its framing; the parser checks the size of the content.
            max_request_body_size=8 * max_body + HEADER_BYTES,
            # Nothing is written to disk: there may be no writable one.
            inbuf_overflow=2 * max_body,
            outbuf_overflow=64 << 20,
            asyncore_use_poll=True,
            # The app must see that a request came through a proxy; it does not trust the values of these headers.
            clear_untrusted_proxy_headers=False,
            log_socket_errors=False,
        )
        adj.max_body = max_body
        address = (listener.family, listener.type, listener.proto, listener.getsockname())
        self._answers_looked_at = 0.0
        self._next_maintenance = 0.0
        self._to_close: deque[Channel] = deque()
        self.unread = BufferBudget(max(self.unread_bodies, 2 * max_body))
        super().__init__(app, _sock=listener, adj=adj, sockinfo=address, bind_socket=False)

    def make_room(self) -> None:
        """Refuses incomplete requests while the buffer budget is exceeded."""
        for channel in self.unread.too_many(self.active_channels.values()):
            channel.give_up()

    def bound_answers(self) -> None:
        """Disconnects the clients that have read nothing for longest while unread responses exceed their bound."""
        now = time.monotonic()
        if now < self._answers_looked_at + _LOOK_SECONDS:
            return
        self._answers_looked_at = now
        channels = list(self.active_channels.values())
        due = [(each.untaken_since or now, -each.total_outbufs_len, each) for each in channels]
        total = -sum(size for _, size, _ in due)
        for _, size, channel in sorted(due, key=lambda each: each[:2]):
            if total <= self.untaken_answers:
                return
            self.cut(channel)
            total += size

    def turn(self, timeout: float) -> None:
        """Runs one iteration of the loop; waits at most `timeout` seconds for an event."""
        wasyncore.loop(timeout, use_poll=True, map=self._map, count=1)
        now = time.monotonic()
        if now >= self._next_maintenance:
            self._next_maintenance = now + 1
            self.maintenance(time.time())
        while self._to_close:
            channel = self._to_close.popleft()
            if channel.connected:
                channel.handle_close()

    def maintenance(self, now: float) -> None:
        super().maintenance(now)
        moment = time.monotonic()
        for channel in self.active_channels.values():
            if channel.late(moment):
                self.cut(channel)
        self.bound_answers()
        self.make_place()

    def make_place(self) -> None:
        """Closes connections that are not being answered when nearly the maximum is open."""
        too_many = len(self.active_channels) - int(NEARLY_ALL * self.adj.connection_limit)
        if too_many > 0:
            waiting = [each for each in self.active_channels.values() if not each.busy]
            for channel in sorted(waiting, key=lambda each: each.dispensable)[:too_many]:
                self.cut(channel)

    def cut(self, channel: Channel) -> None:
        """Closes a connection, even one that never becomes writable. Thread-safe."""
        channel.will_close = True
        self._to_close.append(channel)
        self.pull_trigger()

    def linger(self, seconds: float) -> None:
        """Serves for `seconds` more and closes each connection after its next response."""
        self.draining = True
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.turn(min(left, 1.0))

    def drain(self, seconds: float) -> None:
        """Stops accepting, then waits at most `seconds` for requests; for incomplete ones, HALF_SENT_SECONDS."""
        self.draining = True
        self.del_channel(self._map)
        self.socket.close()
        begun = time.monotonic()
        while (waited := time.monotonic() - begun) < seconds and self.unfinished(waited < HALF_SENT_SECONDS):
            self.turn(0.05)
        self.task_dispatcher.shutdown(timeout=1)

    def unfinished(self, wait_for_half_sent: bool) -> bool:
        """Returns whether a request is being answered, or is incomplete and waited for."""
        return any(
            channel.busy or (wait_for_half_sent and channel.request is not None)
            for channel in list(self.active_channels.values())
        )
