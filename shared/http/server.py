"""Reads requests without giving a thread to anyone who is slow, and stops without cutting anyone off.

gunicorn starts and watches the processes; in each, one loop reads all sockets, and a request goes to a thread when all
of it is there (waitress). Added here: a request that does not arrive in time is cut, what two servers could read
differently is refused, refusals reach callers who are still sending, what is half here is bounded, and
a process that is told to stop finishes the
requests that it has.
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
"""For which the rest of a refused request is read and thrown away."""
HALF_SENT_SECONDS = 2
"""For which a stopping process waits for requests that are half here."""
FILES_BESIDE = 200
LONGEST_CHUNK_LINE = 256
LONGEST_TRAILERS = 4096
SMALL_ANSWER = 16 << 10
"""Bytes of an answer that may wait for whoever does not read, uncounted: the connections are few enough."""
UNTAKEN_SECONDS = 20
"""For which a caller may take nothing of an answer that is there."""
NEARLY_ALL = 0.9
"""Of the connections that there may be; beyond it those that ask for nothing make place."""
_LOOK_SECONDS = 0.05


class Crowded(Error):  # type: ignore[misc]  # waitress has no types
    """More is sent at the same time than may be kept."""

    code = 503
    reason = "Service Unavailable"


_FOLDED = re.compile(rb"\r\n[ \t]")


class GunicornWorker(Worker):  # type: ignore[misc]  # gunicorn has no types
    """A process of gunicorn's that reads like waitress."""

    server_class: type[Server]
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
        server = self.server = self.server_class(self.wsgi, self.sockets[0].sock, self.cfg.threads)
        while self.alive and self.is_parent_alive():
            server.turn(1.0)
            self.notify()
        delay = self.app.settings.shutdown_delay if self.is_parent_alive() else 0.0
        server.linger(delay)
        self.stopping()
        server.drain(self.cfg.graceful_timeout - delay - 1)

    def stopping(self) -> None:
        """Called before the requests that are here are finished."""

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

    def parse_header(self, header_plus: bytes) -> None:
        if _FOLDED.search(header_plus):
            raise ParsingError("a header is folded over several lines: send it on one")
        super().parse_header(header_plus)
        if "TRANSFER_ENCODING" in self.headers:
            # waitress takes it out where it means something, which it does in HTTP/1.1 only.
            raise ParsingError("Transfer-Encoding is for HTTP/1.1: send Content-Length, or HTTP/1.1")
        if self.chunked and "CONTENT_LENGTH" in self.headers:
            raise ParsingError("the request has both Content-Length and Transfer-Encoding: send one of them")

    def received(self, data: bytes) -> int:
        consumed: int = super().received(data)
        if self._too_large():
            said = f"the body is larger than {self.adj.max_body} bytes: send less, or raise MAX_BODY_BYTES"
            self._refuse(RequestEntityTooLarge(said))
        elif self._chatty():
            self._refuse(BadRequest("a line beside the chunks is too long"))
        if self.error is not None:
            self.expect_continue = False
        return consumed

    @property
    def size(self) -> int:
        """Bytes that are kept of it."""
        return len(self.header_plus) + (len(self.body_rcv) if self.body_rcv is not None else 0)

    def give_up(self) -> None:
        """What is here of it is let go, and what follows is not kept."""
        self.expect_continue, self.body_rcv = False, None
        self._refuse(Crowded("too much is sent at the same time: send it again in a moment"))

    def _refuse(self, error: Error) -> None:
        self.completed, self.error = True, error

    def _too_large(self) -> bool:
        size = len(self.body_rcv) if self.chunked else self.content_length
        return bool(size > self.adj.max_body)

    def _chatty(self) -> bool:
        """What comes beside the chunks is no part of the body, and is kept until its line is whole."""
        body = self.body_rcv if self.chunked else None
        return body is not None and (
            len(body.control_line) > LONGEST_CHUNK_LINE or len(body.trailer) > LONGEST_TRAILERS
        )


class Refused(ErrorTask):  # type: ignore[misc]  # waitress has no types
    """The refusal of what could not be read as a request."""

    def execute(self) -> None:
        self.status = f"{self.request.error.code} {self.request.error.reason}"
        self.response_headers.append(("Content-Type", "text/plain; charset=utf-8"))
        if isinstance(self.request.error, Crowded):
            self.response_headers.append(("Retry-After", "1"))
        self.answer(f"{self.request.error.body}\n".encode())

    def answer(self, body: bytes) -> None:
        """Sends it, and nothing more on this connection."""
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
    error_task_class = Refused
    task_class = Task

    request: Any
    requests: list[Any]
    refused = False
    lingers_until: float | None = None
    kept = 0
    """Bytes of requests that are counted as unread."""
    untaken_since: float | None = None
    """When it was seen that nothing of what is due to the caller is taken."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.at_rest_since = time.monotonic()

    @property
    def unread(self) -> int:
        """Bytes of requests that nobody has read yet; none of one who has gone."""
        if not self.connected:
            return 0
        return sum(each.size for each in (*self.requests, self.request) if each is not None)

    @property
    def busy(self) -> bool:
        """A request is being answered."""
        return bool(self.requests or self.total_outbufs_len)

    @property
    def dispensable(self) -> tuple[bool, float]:
        """Smaller than that of another: rather closed. First who asks for nothing, then whose request takes longest."""
        return (False, self.at_rest_since) if self.request is None else (True, self.request.begun)

    def late(self, now: float) -> bool:
        """A request has been arriving for too long, or the rest of a refused one; or its answer is not taken."""
        if self.lingers_until is not None:
            return now > self.lingers_until
        if self.total_outbufs_len:
            self.untaken_since = self.untaken_since or now
            return now - self.untaken_since > UNTAKEN_SECONDS
        return self.request is not None and now - self.request.begun > self.server.receive_seconds

    def received(self, data: bytes) -> bool:
        taken = bool(super().received(data))
        # What comes in one piece is as good as read.
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
    """The loop that reads and writes all connections of a process. Who uses it says how patient it is."""

    channel_class: type[Channel] = Channel
    connections: ClassVar[int]
    """As many as there may be, where the system lets a process have as many files."""
    receive_seconds: ClassVar[float]
    """For a whole request to arrive, however busily its bytes trickle in."""
    idle_seconds: ClassVar[int]
    """For which a connection is kept between requests."""
    unread_bodies: ClassVar[int]
    """Bytes of requests that are kept while they arrive and until a thread reads them, all connections together."""
    untaken_answers: ClassVar[int]
    """Bytes of answers that wait for callers who do not read them, all connections together."""
    draining = False

    def __init__(self, app: Any, listener: socket.socket, threads: int) -> None:
        max_body = app.config["MAX_CONTENT_LENGTH"]
        adj = Adjustments(
            sockets=[listener],
            threads=threads,
            ident=None,
            # With room for files and for connections to Redis.
            connection_limit=max(50, raise_file_limit(self.connections + FILES_BESIDE) - FILES_BESIDE),
            channel_timeout=self.idle_seconds,
            # By a clock that can be set; `turn` does it by one that cannot.
            cleanup_interval=1 << 30,
            max_request_header_size=HEADER_BYTES,
            # Of a body in chunks; how much it holds is measured by the parser.
            max_request_body_size=8 * max_body + HEADER_BYTES,
            # Nothing is put on disk: there may be none to write to.
            inbuf_overflow=2 * max_body,
            outbuf_overflow=64 << 20,
            asyncore_use_poll=True,
            # The app has to see that a request came through a proxy; nothing believes what these headers say.
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
        """Refuses what is half here, where all together is more than may be kept."""
        for channel in self.unread.too_many(self.active_channels.values()):
            channel.give_up()

    def bound_answers(self) -> None:
        """Cuts off who has read nothing for longest, where all that waits to be read is more than may be kept."""
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
        """One round: waits for something to do, at most so long, and does it."""
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
        """Closes connections on which nothing is answered, where there are nearly as many as may be."""
        too_many = len(self.active_channels) - int(NEARLY_ALL * self.adj.connection_limit)
        if too_many > 0:
            waiting = [each for each in self.active_channels.values() if not each.busy]
            for channel in sorted(waiting, key=lambda each: each.dispensable)[:too_many]:
                self.cut(channel)

    def cut(self, channel: Channel) -> None:
        """Ends a connection, also one that takes nothing more and so never becomes writable; from any thread."""
        channel.will_close = True
        self._to_close.append(channel)
        self.pull_trigger()

    def linger(self, seconds: float) -> None:
        """Serves on for a time, and ends each connection with its next answer."""
        self.draining = True
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.turn(min(left, 1.0))

    def drain(self, seconds: float) -> None:
        """Takes no more connections, answers what is here, for a while also what is half here, then ends."""
        self.draining = True
        self.del_channel(self._map)
        self.socket.close()
        begun = time.monotonic()
        while (waited := time.monotonic() - begun) < seconds and self.unfinished(waited < HALF_SENT_SECONDS):
            self.turn(0.05)
        self.task_dispatcher.shutdown(timeout=1)

    def unfinished(self, wait_for_half_sent: bool) -> bool:
        """Whether a request is being answered, or is half here and waited for."""
        return any(
            channel.busy or (wait_for_half_sent and channel.request is not None)
            for channel in list(self.active_channels.values())
        )
