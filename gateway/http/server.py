"""The gateway's HTTP server: streamed bodies, refusals as problem documents, event streams.

The loop itself, and its shutdown, are in `shared/http/server.py`.
"""

from __future__ import annotations

import logging
import socket
from collections import deque
from contextlib import suppress
from secrets import token_hex
from typing import Any

from waitress.adjustments import Adjustments
from waitress.channel import ClientDisconnected

from gateway.events.broadcaster import Stream
from gateway.http import errors, ndjson
from gateway.http.errors import Kind, Refusal
from gateway.http.streams import Streams
from shared.http import server

log = logging.getLogger(__name__)

STREAMED = "/tasks/batch"
"""The path whose body of lines is read as it arrives."""
UNREAD_EVENTS = 256 << 10
"""Maximum bytes of events that wait for a client that does not read."""


class Parser(server.Parser):
    """An incoming request; a stream of lines is answered while it arrives."""

    def __init__(self, adj: Adjustments) -> None:
        super().__init__(adj)
        self.stream: tuple[int | None, bool] | None = None
        self.rest = b""

    def parse_header(self, header_plus: bytes) -> None:
        super().parse_header(header_plus)
        if self.command == "POST" and self.path == STREAMED and self._is_lines():
            self._leave_body()

    def _is_lines(self) -> bool:
        kind: str = self.headers.get("CONTENT_TYPE", "")
        return kind.partition(";")[0].strip().lower() == ndjson.MEDIA_TYPE

    def _leave_body(self) -> None:
        """Leaves the body unread; keeps its length and whether the client expects 100 Continue."""
        self.stream = (None if self.chunked else self.content_length, self.expect_continue)
        self.body_rcv, self.chunked, self.content_length = None, False, 0
        self.expect_continue, self.connection_close = False, True

    def received(self, data: bytes) -> int:
        consumed = super().received(data)
        if self.stream is not None and self.completed and not self.error:
            self.rest, consumed = data[consumed:], len(data)
        return consumed


class Problem(server.Refused):
    """The refusal of a request that could not be parsed."""

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
        self.answer(body)


class Pipe:
    """The sink of an event stream: its connection stays in the loop and costs nothing while it is silent."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.channel: Channel = task.channel

    def send(self, data: bytes) -> bool:
        """Sends data. Returns whether the client is connected; disconnects a client that reads too slowly."""
        if self.channel.total_outbufs_len > UNREAD_EVENTS:
            self.channel.server.cut(self.channel)
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


class Task(server.Task):
    """A request that the app answers.

    When the app responds with an event stream, this thread becomes free and the connection stays open for the stream.
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


class Channel(server.Channel):
    """A connection."""

    parser_class = Parser
    error_task_class = Problem
    task_class = Task

    events: Stream | None = None
    """The event stream of this connection; the connection closes when it ends."""

    @property
    def busy(self) -> bool:
        return self.events is not None or super().busy

    def leave(self, streams: Streams) -> None:
        """Passes the connection to a stream and removes it from this loop."""
        request, sock = self.requests[0], self.socket
        environ = self.task_class(self, request).get_environment()
        self.del_channel()
        length, waits = request.stream
        streams.take(sock, request.rest, length, environ, waits)

    def received(self, data: bytes) -> bool:
        """Ignores further requests on a connection with an event stream."""
        return self.events is None and super().received(data)

    def handle_write(self) -> None:
        if self.events is not None and not self.will_close:
            # Another thread may write at the same time.
            self._flush_exception(self._flush_some_if_lockable)
        else:
            super().handle_write()

    def handle_close(self) -> None:
        events, self.events = self.events, None
        if events is not None:
            events.close()
        super().handle_close()


class Server(server.Server):
    """The loop that reads and writes all connections of a process."""

    channel_class = Channel
    connections = 4000
    receive_seconds = 20
    idle_seconds = 60
    # With 700 bodies of 1 MiB that never end, two processes grew from 183 to 402 MB, of the 512 that a container gets.
    unread_bodies = 64 << 20
    untaken_answers = 64 << 20

    def __init__(self, app: Any, listener: socket.socket, threads: int) -> None:
        self.streams = Streams(app)
        self.leaving: deque[Channel] = deque()
        super().__init__(app, listener, threads)

    def add_task(self, task: Any) -> None:
        """Passes a complete request to a thread, and a stream, whose body is still arriving, to its own thread."""
        if getattr(task, "events", None) is not None:
            return
        first = task.requests[0]
        if getattr(first, "stream", None) is not None and not first.error and len(task.requests) == 1:
            # This may run in a thread that finished the previous request; only the loop may remove a connection.
            self.leaving.append(task)
            self.pull_trigger()
        else:
            super().add_task(task)

    def turn(self, timeout: float) -> None:
        super().turn(timeout)
        for _ in range(len(self.leaving)):
            channel = self.leaving.popleft()
            if channel.connected and channel.total_outbufs_len:
                # Earlier responses are sent first; a client that does not read them is disconnected as usual.
                self.leaving.append(channel)
            elif channel.connected:
                channel.leave(self.streams)

    def unfinished(self, wait_for_half_sent: bool) -> bool:
        return bool(self.leaving) or self.streams.running > 0 or super().unfinished(wait_for_half_sent)


class GunicornWorker(server.GunicornWorker):
    """A gunicorn worker process of the gateway."""

    server_class = Server

    def run(self) -> None:
        super().run()
        if not self.is_parent_alive():
            self.app.clean_up()

    def stopping(self) -> None:
        self.wsgi.config["STOPPING"].set()


def _kind(code: int) -> Kind:
    kinds = (errors.CROWDED, errors.BAD_REQUEST, errors.TOO_LARGE, errors.HEADERS_TOO_LARGE, errors.NOT_IMPLEMENTED)
    return next((kind for kind in kinds if kind.status == code), errors.INTERNAL)


def _path(request: Any) -> str:
    return str(getattr(request, "path", "") or "/")
