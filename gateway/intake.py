"""Reads requests without giving a thread to anyone who is slow, and stops without cutting anyone off.

One loop reads all sockets; a request goes to a thread when all of it is there (waitress). Added here: a request that
does not arrive in time is cut, what two servers could read differently is refused, refusals are problem documents and
reach callers who are still sending, and a process that is told to stop finishes the requests that it has.
"""

from __future__ import annotations

import logging
import os
import re
import resource
import signal
import socket
import time
from contextlib import suppress
from secrets import token_hex
from typing import Any

from gunicorn.workers.base import Worker
from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import ClientDisconnected, HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.server import TcpWSGIServer
from waitress.task import ErrorTask, WSGITask
from waitress.utilities import Error, RequestEntityTooLarge

from gateway import errors, ndjson
from gateway.errors import Kind, Refusal
from gateway.events import Stream
from gateway.streams import Streams
from gateway.unread import Unread

log = logging.getLogger(__name__)

RECEIVE_SECONDS = 20
"""For a whole request to arrive, however busily its bytes trickle in."""
IDLE_SECONDS = 60
"""For which a connection is kept between requests."""
STREAMED = "/tasks/batch"
"""Where a body of lines is read while it comes."""
CONNECTIONS = 4000
HEADER_BYTES = 32 << 10
LINGER_SECONDS = 5
"""For which the rest of a refused request is read and thrown away."""
UNREAD_BODIES = 64 << 20
"""Bytes of requests that a process keeps while they arrive and until a thread reads them, all connections together.

With 700 bodies of 1 MiB that never end, two processes grew from 183 to 402 MB, of the 512 that a container gets.
"""
UNREAD_EVENTS = 256 << 10
"""Bytes of events that wait for somebody who does not read."""
HALF_SENT_SECONDS = 2
"""For which a stopping process waits for requests that are half here."""


class _Crowded(Error):  # type: ignore[misc]  # waitress has no types
    code = errors.CROWDED.status
    reason = errors.CROWDED.title


_FOLDED = re.compile(rb"\r\n[ \t]")


class Intake(Worker):  # type: ignore[misc]  # gunicorn has no types
    """A process of gunicorn's that reads like waitress."""

    server: Server | None = None

    def init_signals(self) -> None:
        super().init_signals()
        # Ctrl-C reaches the whole group; gunicorn's first process tells this one what to do about it.
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
        server = self.server = Server(self.wsgi, self.sockets[0].sock, self.cfg.threads, connections=_connections())
        while self.alive and self.is_parent_alive():
            server.turn(1.0)
            self.notify()
        self.wsgi.config["STOPPING"].set()
        server.drain(self.cfg.graceful_timeout - 1)
        if not self.is_parent_alive():
            self.app.clean_up()

    def is_parent_alive(self) -> bool:
        """Without its first process nobody would ever stop this one."""
        return bool(self.ppid == os.getppid())


class Parser(HTTPRequestParser):  # type: ignore[misc]  # waitress has no types
    """A request on its way in."""

    body_rcv: Any
    chunked: bool
    completed: bool
    content_length: int

    def __init__(self, adj: Adjustments) -> None:
        super().__init__(adj)
        self.expect_continue = False
        self.error: Error | None = None
        self.begun = time.monotonic()
        self.stream: tuple[int | None, bool] | None = None
        self.rest = b""

    def parse_header(self, header_plus: bytes) -> None:
        if _FOLDED.search(header_plus):
            raise ParsingError("a header is folded over several lines: send it on one")
        super().parse_header(header_plus)
        if self.chunked and "CONTENT_LENGTH" in self.headers:
            raise ParsingError("the request has both Content-Length and Transfer-Encoding: send one of them")
        if self.command == "POST" and self.path == STREAMED and self._is_lines():
            self._leave_body()

    def _is_lines(self) -> bool:
        kind: str = self.headers.get("CONTENT_TYPE", "")
        return kind.partition(";")[0].strip().lower() == ndjson.MEDIA_TYPE

    def _leave_body(self) -> None:
        """The body is not read here: how long it is, and whether its sender waits for a word before it sends it."""
        self.stream = (None if self.chunked else self.content_length, self.expect_continue)
        self.body_rcv, self.chunked, self.content_length = None, False, 0
        self.expect_continue, self.connection_close = False, True

    def received(self, data: bytes) -> int:
        consumed: int = super().received(data)
        if self.stream is not None and self.completed and not self.error:
            self.rest, consumed = data[consumed:], len(data)
        if self._too_large():
            self.completed = True
            self.error = RequestEntityTooLarge(f"the body is larger than {self.adj.max_body} bytes: send less")
        if self.error is not None:
            self.expect_continue = False
        return consumed

    @property
    def size(self) -> int:
        """Bytes that are kept of it."""
        return len(self.header_plus) + (len(self.body_rcv) if self.body_rcv is not None else 0)

    def give_up(self) -> None:
        """What is here of it is let go, and what follows is not kept."""
        self.completed, self.expect_continue, self.body_rcv = True, False, None
        self.error = _Crowded("too much is sent at the same time: send it again in a moment")

    def _too_large(self) -> bool:
        size = len(self.body_rcv) if self.chunked else self.content_length
        return bool(size > self.adj.max_body)


class Problem(ErrorTask):  # type: ignore[misc]  # waitress has no types
    """The refusal of what could not be read as a request."""

    def execute(self) -> None:
        code, detail = self.request.error.code, str(self.request.error.body)
        request_id = token_hex(8)
        refusal = Refusal(_kind(code), detail)
        body = errors.document(refusal, instance=_path(self.request), request_id=request_id)
        log.info("request refused", extra={"request_id": request_id, "status": code, "reason": detail})
        self.status = f"{code} {refusal.kind.title}"
        self.response_headers += [("Content-Type", errors.MEDIA_TYPE), ("X-Request-ID", request_id)]
        if refusal.kind is errors.CROWDED:
            self.response_headers.append(("Retry-After", str(errors.RETRY_AFTER)))
        self.set_close_on_finish()
        self.channel.refused = True
        self.content_length = len(body)
        self.write(body)


class Pipe:
    """Where a stream of events is written: its connection stays in the loop, and costs nothing while it is silent."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.channel: Channel = task.channel

    def send(self, data: bytes) -> bool:
        """Whether somebody is there; who reads too slowly is not waited for, but cut off."""
        if self.channel.total_outbufs_len > UNREAD_EVENTS:
            self.channel.will_close = True
        else:
            try:
                self.task.write(data)
            except ClientDisconnected:
                return False
        self.channel.server.pull_trigger()
        return not self.channel.will_close

    def end(self) -> None:
        with suppress(ClientDisconnected):
            if self.task.chunked_response:
                self.channel.write_soon(b"0\r\n\r\n")
        self.channel.events = None
        self.channel.close_when_flushed = True
        self.channel.server.pull_trigger()


class Task(WSGITask):  # type: ignore[misc]  # waitress has no types
    """A request that the app answers; when the process stops, its connection ends with it.

    The app may begin a stream of events as its answer: then this thread is free, and the connection is kept for it.
    """

    events: Stream | None = None

    def get_environment(self) -> dict[str, Any]:
        environ: dict[str, Any] = super().get_environment()
        environ["taskqueue.hold"] = self._hold
        return environ

    def _hold(self, events: Stream) -> None:
        self.events = events

    def finish(self) -> None:
        if self.events is None:
            super().finish()
        elif self.content_length is not None or not self.channel.connected:
            self.events.close()
            super().finish()
        else:
            self.close_on_finish = False
            self.channel.events = self.events
            self.events.begin(Pipe(self))

    def build_response_header(self) -> bytes:
        if self.channel.server.draining:
            self.set_close_on_finish()
        header: bytes = super().build_response_header()
        return header


class Channel(HTTPChannel):  # type: ignore[misc]  # waitress has no types
    """A connection."""

    parser_class = Parser
    error_task_class = Problem
    task_class = Task

    request: Any
    requests: list[Any]
    refused = False
    lingers_until: float | None = None
    events: Stream | None = None
    """What is told here, until it ends; then the connection ends, too."""
    kept = 0
    """Bytes of requests that are counted as unread."""

    @property
    def unread(self) -> int:
        """Bytes of requests that nobody has read yet; none of one who has gone."""
        if not self.connected:
            return 0
        return sum(each.size for each in (*self.requests, self.request) if each is not None)

    @property
    def busy(self) -> bool:
        """A request is being answered."""
        return bool(self.requests or self.total_outbufs_len or self.events is not None)

    def late(self, now: float) -> bool:
        """A request has been arriving for too long, or the rest of a refused one."""
        if self.lingers_until is not None:
            return now > self.lingers_until
        return self.request is not None and now - self.request.begun > RECEIVE_SECONDS

    def leave(self, streams: Streams) -> None:
        """Hands the connection over to a stream; this loop knows it no longer."""
        request, sock = self.requests[0], self.socket
        environ = self.task_class(self, request).get_environment()
        self.del_channel()
        length, waits = request.stream
        streams.take(sock, request.rest, length, environ, waits)

    def handle_write(self) -> None:
        if self.refused and self.close_when_flushed and not self.will_close:
            self._flush_exception(self._flush_some)
            if not self.total_outbufs_len:
                self._linger()
        elif self.events is not None and not self.will_close:
            # Another thread writes, too, at any time.
            self._flush_exception(self._flush_some_if_lockable)
        else:
            super().handle_write()

    def received(self, data: bytes) -> bool:
        """Behind a request for events nothing else is answered on the same connection."""
        taken = self.events is None and bool(super().received(data))
        # What comes in one piece is as good as read.
        if self.request is not None or self.kept:
            self.server.unread.count(self)
            self.server.make_room()
        return taken

    def service(self) -> None:
        super().service()
        if self.kept:
            self.server.unread.count(self)

    def give_up(self) -> None:
        """The request that is half here is refused; who has not even sent its headers is cut off."""
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

    def handle_close(self) -> None:
        events, self.events = self.events, None
        if events is not None:
            events.close()
        super().handle_close()

    def _linger(self) -> None:
        """Says that no more is sent, and reads on for a while.

        A connection that is closed with bytes unread is reset, and the caller, still sending, would never see why.
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
    """The loop that reads and writes all connections of a process."""

    channel_class = Channel
    draining = False

    def __init__(self, app: Any, listener: socket.socket, threads: int, connections: int = CONNECTIONS) -> None:
        max_body = app.config["MAX_CONTENT_LENGTH"]
        adj = Adjustments(
            sockets=[listener],
            threads=threads,
            ident=None,
            connection_limit=connections,
            channel_timeout=IDLE_SECONDS,
            cleanup_interval=1,
            max_request_header_size=HEADER_BYTES,
            # Of a body in chunks; how much it holds is measured by the parser.
            max_request_body_size=8 * max_body + HEADER_BYTES,
            # Nothing is put on disk: there may be none to write to.
            inbuf_overflow=2 * max_body,
            outbuf_overflow=64 << 20,
            asyncore_use_poll=True,
            log_socket_errors=False,
        )
        adj.max_body = max_body
        address = (listener.family, listener.type, listener.proto, listener.getsockname())
        self.streams = Streams(app)
        self.unread = Unread(max(UNREAD_BODIES, 2 * max_body))
        super().__init__(app, _sock=listener, adj=adj, sockinfo=address, bind_socket=False)

    def add_task(self, task: Any) -> None:
        """A request is ready for a thread; a stream, whose body is still to come, for one of its own."""
        if getattr(task, "events", None) is not None:
            return
        first = task.requests[0]
        if getattr(first, "stream", None) is not None and not first.error and len(task.requests) == 1:
            task.leave(self.streams)
        else:
            super().add_task(task)

    def make_room(self) -> None:
        """Refuses what is half here, where all together is more than may be kept."""
        for channel in self.unread.too_many(self.active_channels.values()):
            channel.give_up()

    def turn(self, timeout: float) -> None:
        """One round: waits for something to do, at most so long, and does it."""
        wasyncore.loop(timeout, use_poll=True, map=self._map, count=1)

    def maintenance(self, now: float) -> None:
        super().maintenance(now)
        moment = time.monotonic()
        for channel in self.active_channels.values():
            if channel.late(moment):
                channel.will_close = True

    def drain(self, seconds: float) -> None:
        """Takes no more connections, answers what is here, for a while also what is half here, then ends."""
        self.draining = True
        self.del_channel(self._map)
        self.socket.close()
        begun = time.monotonic()
        while (waited := time.monotonic() - begun) < seconds and self._unfinished(waited < HALF_SENT_SECONDS):
            self.turn(0.05)
        self.task_dispatcher.shutdown(timeout=1)

    def _unfinished(self, wait_for_half_sent: bool) -> bool:
        return self.streams.running > 0 or any(
            channel.busy or (wait_for_half_sent and channel.request is not None)
            for channel in list(self.active_channels.values())
        )


def _connections() -> int:
    """As many as there may be, with room for files and for connections to Redis."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS + 200
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return CONNECTIONS if soft == resource.RLIM_INFINITY else max(50, min(CONNECTIONS, soft - 200))


def _kind(code: int) -> Kind:
    kinds = (errors.CROWDED, errors.BAD_REQUEST, errors.TOO_LARGE, errors.HEADERS_TOO_LARGE, errors.NOT_IMPLEMENTED)
    return next((kind for kind in kinds if kind.status == code), errors.INTERNAL)


def _path(request: Any) -> str:
    return str(getattr(request, "path", "") or "/")
