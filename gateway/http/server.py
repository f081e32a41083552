"""The gateway's HTTP server: refusals as problem documents, and event streams.

The loop itself, and its shutdown, are in `shared/http/server.py`.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from secrets import token_hex
from typing import Any

from waitress.channel import ClientDisconnected
from waitress.task import ErrorTask

from firmq.gateway.events.broadcaster import Stream
from firmq.gateway.http import errors
from firmq.shared.http import server

log = logging.getLogger(__name__)


class Problem(ErrorTask):  # type: ignore[misc]  # waitress has no types
    """The refusal of a request that could not be parsed, as a problem document."""

    def execute(self) -> None:
        refusal = errors.of_unreadable(
            self.request.error.code, str(self.request.error.body), self.channel.adj.max_request_body_size - 1
        )
        path, request_id = str(getattr(self.request, "path", "") or "/"), token_hex(8)
        body = errors.document(refusal, instance=path, request_id=request_id)
        log.info("request refused", extra={"request_id": request_id, "reason": refusal.detail})
        self.status = f"{refusal.kind.status} {refusal.kind.title}"
        self.response_headers += [("Content-Type", errors.MEDIA_TYPE), ("X-Request-ID", request_id)]
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)


class Task(server.Task):
    """A request that the app answers.

    When the app responds with an event stream, this thread becomes free and the connection stays open in the loop. Then
    this is the sink of the stream.
    """

    events: Stream | None = None

    def get_environment(self) -> dict[str, Any]:
        environ: dict[str, Any] = super().get_environment()
        environ["firmq.hold"] = self._hold
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
            self.events.begin(self)

    @property
    def unread(self) -> int:
        return 0 if self.channel.will_close else int(self.channel.total_outbufs_len)

    def send(self, data: bytes) -> bool:
        """Sends data. Returns whether the client is connected."""
        try:
            self.write(data)
        except ClientDisconnected:
            return False
        self.channel.server.pull_trigger()
        return not self.channel.will_close

    def disconnect(self) -> None:
        self.channel.will_close = True
        self.channel.server.pull_trigger()

    def end(self) -> None:
        """Ends the stream and its connection."""
        with suppress(ClientDisconnected):
            if self.chunked_response:
                self.channel.write_soon(b"0\r\n\r\n")
        self.channel.events = None
        self.channel.close_when_flushed = True
        self.channel.server.pull_trigger()


class Channel(server.Channel):
    """A connection."""

    error_task_class = Problem
    task_class = Task

    events: Stream | None = None
    """The event stream of this connection; the connection closes when it ends."""

    @property
    def busy(self) -> bool:
        return self.events is not None or super().busy

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
    memory = 64 << 20

    def add_task(self, task: Any) -> None:
        """Passes a complete request to a thread; further requests on a connection with an event stream are ignored."""
        if getattr(task, "events", None) is None:
            super().add_task(task)


class GunicornWorker(server.GunicornWorker):
    """A gunicorn worker process of the gateway."""

    server_class = Server

    def run(self) -> None:
        super().run()
        if not self.is_parent_alive():
            self.app.clean_up()

    def stopping(self) -> None:
        self.wsgi.config["STOPPING"].set()
