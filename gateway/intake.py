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
from secrets import token_hex
from typing import Any

from gunicorn.workers.base import Worker
from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.server import TcpWSGIServer
from waitress.task import ErrorTask, WSGITask
from waitress.utilities import Error, RequestEntityTooLarge

from gateway import errors, ndjson
from gateway.errors import Kind, Refusal
from gateway.streams import Streams

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
HALF_SENT_SECONDS = 2
"""For which a stopping process waits for requests that are half here."""

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
        self.set_close_on_finish()
        self.channel.refused = True
        self.content_length = len(body)
        self.write(body)


class Task(WSGITask):  # type: ignore[misc]  # waitress has no types
    """A request that the app answers; when the process stops, its connection ends with it."""

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

    refused = False
    lingers_until: float | None = None

    @property
    def busy(self) -> bool:
        """A request is being answered."""
        return bool(self.requests or self.total_outbufs_len)

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
        else:
            super().handle_write()

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
        super().__init__(app, _sock=listener, adj=adj, sockinfo=address, bind_socket=False)

    def add_task(self, task: Any) -> None:
        """A request is ready for a thread; a stream, whose body is still to come, for one of its own."""
        first = task.requests[0]
        if getattr(first, "stream", None) is not None and not first.error and len(task.requests) == 1:
            task.leave(self.streams)
        else:
            super().add_task(task)

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
    kinds = (errors.BAD_REQUEST, errors.TOO_LARGE, errors.HEADERS_TOO_LARGE, errors.NOT_IMPLEMENTED)
    return next((kind for kind in kinds if kind.status == code), errors.INTERNAL)


def _path(request: Any) -> str:
    return str(getattr(request, "path", "") or "/")
