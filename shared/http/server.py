"""The HTTP server loop: slow clients occupy no thread, and shutdown aborts no request.

gunicorn starts and monitors the processes. In each, one loop reads all sockets, and a request is passed to a thread
when all of it has arrived (waitress). Added here: time limits, a bound of the memory that connections use, refusal of
ambiguous HTTP, refusals that reach clients that are still sending, and a shutdown that finishes requests. The rest is
left to a proxy in front: see docs/deploy/sizing.md.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import time
from math import inf
from typing import Any, ClassVar

from gunicorn.workers.base import Worker
from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.buffers import OverflowableBuffer
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.server import TcpWSGIServer
from waitress.task import WSGITask

from firmq.shared.http.bind import raise_file_limit

HEADER_BYTES = 32 << 10
UNREAD_SECONDS = 20
"""Seconds for which a client may read nothing of its response."""
LINGER_SECONDS = 5
"""Seconds for which the rest of a refused request is read and discarded."""
HALF_SENT_SECONDS = 2
"""Seconds for which a stopping process waits for incomplete requests."""
FILES_BESIDE = 200
NEARLY_ALL = 0.9
"""Share of the maximum connections above which connections that wait for their client are closed after a second."""
MAINTENANCE_SECONDS = 0.25
"""Seconds between examinations of all connections; in that time their memory can exceed its bound."""
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

    def run(self) -> None:
        logging.getLogger("waitress.queue").setLevel(logging.ERROR)
        first, *others = (each.sock for each in self.sockets)
        server = self.server = self.server_class(self.wsgi, first, self.cfg.threads)
        server.idle_seconds = self.app.settings.keep_alive_timeout
        for each in others:
            server.listen_also(each)
        while self.alive and self.is_parent_alive():
            server.turn(1.0)
            self.notify()
        delay = self.app.settings.shutdown_delay if self.is_parent_alive() else 0.0
        server.serve_until(time.monotonic() + delay)
        self.stopping()
        server.drain(self.cfg.graceful_timeout - delay - 1)

    def stopping(self) -> None:
        """Runs at shutdown, before the current requests are finished."""

    def is_parent_alive(self) -> bool:
        """Returns whether gunicorn's main process is alive; without it this process would never be stopped."""
        return bool(self.ppid == os.getppid())


class Parser(HTTPRequestParser):  # type: ignore[misc]  # waitress has no types
    """An incoming request."""

    def __init__(self, adj: Adjustments) -> None:
        super().__init__(adj)
        self.begun = time.monotonic()

    def parse_header(self, header_plus: bytes) -> None:
        if _FOLDED.search(header_plus):
            raise ParsingError("a header is folded over several lines: send it on one line")
        try:
            super().parse_header(header_plus)
        except ValueError as error:
            # From the standard library: a target such as http://[, or a Content-Length of 5,000 digits.
            raise ParsingError("the request target or Content-Length is invalid") from error
        if "TRANSFER_ENCODING" in self.headers:
            # waitress removes it where it is valid, which is in HTTP/1.1 only.
            raise ParsingError("Transfer-Encoding is for HTTP/1.1: send Content-Length, or HTTP/1.1")
        if self.chunked and "CONTENT_LENGTH" in self.headers:
            raise ParsingError("the request has both Content-Length and Transfer-Encoding: send one of them")
        # waitress would wait for a body after "100 Continue", even an empty one.
        if self.body_rcv is None:
            self.expect_continue = False

    def received(self, data: bytes) -> int:
        consumed: int = super().received(data)
        if self.error is not None:
            self.expect_continue = False
        return consumed


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
    task_class = Task
    will_close: bool
    close_when_flushed: bool
    refused = False
    closes_at = inf
    """Time at which the connection of a refused request is closed."""

    @property
    def busy(self) -> bool:
        """Returns whether a request is being answered."""
        return bool(self.requests or self.total_outbufs_len)

    @property
    def memory(self) -> int:
        """Returns the bytes of requests that are not answered and of responses that are not read."""
        requests = [each for each in (*self.requests, self.request) if each is not None]
        return int(self.total_outbufs_len + sum(len(each.header_plus) + each.body_bytes_received for each in requests))

    def late(self, now: float, idle_seconds: float, receive_seconds: float = inf) -> bool:
        """Returns whether a request arrives too slowly, a response is not read, or the connection is idle too long.

        The limits here apply where they are shorter than the usual ones.
        """
        silent = time.time() - self.last_activity
        if self.request is not None and self.busy:
            self.request.begun = now  # it is not read on before the responses in front are sent
        return bool(
            self.will_close
            or now > self.closes_at
            or (
                self.request is not None
                and now - self.request.begun > min(receive_seconds, self.server.receive_seconds)
            )
            or (self.total_outbufs_len and silent > min(max(idle_seconds, receive_seconds), UNREAD_SECONDS))
            or (self.request is None and not self.busy and silent > idle_seconds)
        )

    def _flush_some(self, do_close: bool = True) -> bool:
        sent: bool = super()._flush_some(do_close)
        if not self.total_outbufs_len and self.outbufs[0].buf is not None:
            # waitress would keep sent data, up to 16 MiB for each connection: streams and idle ones last.
            self.outbufs[0].close()
            self.outbufs[:], self.current_outbuf_count = [OverflowableBuffer(self.adj.outbuf_overflow)], 0
        return sent

    def service(self) -> None:
        self.refused = self.requests[0].error is not None
        super().service()

    def handle_write(self) -> None:
        """Writes; after a refusal, ends only the sending side and reads on until the client ends or LINGER_SECONDS.

        Closing a connection with unread bytes resets it, and a client that is still sending would not see the refusal.
        """
        if not self.refused or not self.close_when_flushed or self.will_close:
            super().handle_write()
            return
        self._flush_exception(self._flush_some)
        if not self.total_outbufs_len:
            self.close_when_flushed = False
            self.closes_at = time.monotonic() + LINGER_SECONDS
            try:
                self.socket.shutdown(socket.SHUT_WR)
            except OSError:
                self.will_close = True

    def handle_read(self) -> None:
        if self.closes_at == inf:
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
    idle_seconds = 75.0
    """Seconds for which a connection is kept between requests."""
    memory: ClassVar[int]
    """Maximum bytes of requests that are not answered and responses that are not read, all connections together."""
    draining = False

    def __init__(self, app: Any, listener: socket.socket, threads: int, **shared: Any) -> None:
        max_body = app.config["MAX_CONTENT_LENGTH"]
        adj = Adjustments(
            sockets=[listener],
            threads=threads,
            ident=None,
            # Leaves room for files and for connections to Redis.
            connection_limit=max(50, raise_file_limit(self.connections + FILES_BESIDE) - FILES_BESIDE),
            # waitress uses the wall clock; `turn` does the maintenance by the monotonic clock.
            cleanup_interval=1 << 30,
            max_request_header_size=HEADER_BYTES,
            # Refuses this size and larger ones; the framing of a chunked body counts.
            max_request_body_size=max_body + 1,
            # Nothing is written to disk: there may be no writable one.
            inbuf_overflow=2 * max_body,
            outbuf_overflow=64 << 20,
            asyncore_use_poll=True,
            # The app must see that a request came through a proxy; it does not trust the values of these headers.
            clear_untrusted_proxy_headers=False,
            log_socket_errors=False,
        )
        address = (listener.family, listener.type, listener.proto, listener.getsockname())
        self._next_maintenance = 0.0
        self.others: list[Server] = []
        super().__init__(app, _sock=listener, adj=adj, sockinfo=address, bind_socket=False, **shared)

    def listen_also(self, listener: socket.socket) -> None:
        """Serves a further listener in the same loop, with the same threads and limits."""
        other = type(self)(self.application, listener, self.adj.threads, map=self._map, dispatcher=self.task_dispatcher)
        other.active_channels = self.active_channels
        self.others.append(other)

    def turn(self, timeout: float) -> None:
        """Runs one iteration of the loop; waits at most `timeout` seconds for an event."""
        wasyncore.loop(timeout, use_poll=True, map=self._map, count=1)
        now = time.monotonic()
        if now >= self._next_maintenance:
            self._next_maintenance = now + MAINTENANCE_SECONDS
            self.maintenance(now)

    def maintenance(self, now: float) -> None:
        """Closes connections that are late, directly: a client that does not read would never let them be flushed.

        While there are nearly as many as may be, a second is late: for idle ones, and if that makes too little room
        also for a request that arrives and a response that is read.
        """
        usual = (self.idle_seconds, inf)
        for limits in (usual, (1, inf), (1, 1)):
            if limits is not usual and len(self.active_channels) <= NEARLY_ALL * self.adj.connection_limit:
                break
            for channel in list(self.active_channels.values()):
                if channel.late(now, *limits):
                    channel.handle_close()
        self.bound_memory()

    def bound_memory(self) -> None:
        """Closes connections while all together use too much: first those without a request in work, largest first."""
        used = {channel: channel.memory for channel in list(self.active_channels.values())}
        excess = sum(used.values()) - self.memory
        for channel in sorted(used, key=lambda each: (bool(each.requests), -used[each])):
            if excess <= 0:
                return
            excess -= used[channel]
            channel.handle_close()

    def serve_until(self, end: float) -> None:
        """Serves until a time and closes each connection after its next response."""
        self._begin_to_drain()
        while (left := end - time.monotonic()) > 0:
            self.turn(min(left, 1.0))

    def drain(self, seconds: float) -> None:
        """Stops accepting, then waits at most `seconds` for requests; for incomplete ones, HALF_SENT_SECONDS."""
        self._begin_to_drain()
        for each in (self, *self.others):
            each.del_channel(self._map)
            each.socket.close()
        begun = time.monotonic()
        while (waited := time.monotonic() - begun) < seconds and self.unfinished(waited < HALF_SENT_SECONDS):
            self.turn(0.05)
        self.task_dispatcher.shutdown(timeout=1)

    def _begin_to_drain(self) -> None:
        for each in (self, *self.others):
            each.draining = True

    def unfinished(self, wait_for_half_sent: bool) -> bool:
        """Returns whether a request is being answered, or is incomplete and waited for."""
        return any(
            channel.busy or (wait_for_half_sent and channel.request is not None)
            for channel in list(self.active_channels.values())
        )
