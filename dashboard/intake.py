"""Reads requests without giving a thread to anyone who is slow: one loop reads all sockets (waitress).

A request goes to a thread when all of it is there; one that does not arrive in time is cut.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from typing import Any

from gunicorn.workers.base import Worker
from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.server import TcpWSGIServer

RECEIVE_SECONDS = 10
"""For a whole request to arrive, however busily its bytes trickle in."""
IDLE_SECONDS = 15
"""For which a connection is kept between requests."""
CONNECTIONS = 500
HEADER_BYTES = 32 << 10


class Intake(Worker):  # type: ignore[misc]  # gunicorn has no types
    """The process of gunicorn's that reads like waitress."""

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
        server = self.server = Server(self.wsgi, self.sockets[0].sock, self.cfg.threads)
        # Without its first process nobody would ever stop this one.
        while self.alive and self.ppid == os.getppid():
            server.turn(1.0)
            self.notify()
        server.drain(self.cfg.graceful_timeout - 1)


class Parser(HTTPRequestParser):  # type: ignore[misc]  # waitress has no types
    """A request on its way in."""

    def __init__(self, adj: Adjustments) -> None:
        super().__init__(adj)
        self.begun = time.monotonic()


class Channel(HTTPChannel):  # type: ignore[misc]  # waitress has no types
    """A connection."""

    parser_class = Parser

    def late(self, now: float) -> bool:
        """A request has been arriving for too long."""
        return self.request is not None and now - self.request.begun > RECEIVE_SECONDS


class Server(TcpWSGIServer):  # type: ignore[misc]  # waitress has no types
    """The loop that reads and writes all connections."""

    channel_class = Channel

    def __init__(self, app: Any, listener: socket.socket, threads: int) -> None:
        max_body = app.config["MAX_CONTENT_LENGTH"]
        adj = Adjustments(
            sockets=[listener],
            threads=threads,
            ident=None,
            connection_limit=CONNECTIONS,
            channel_timeout=IDLE_SECONDS,
            cleanup_interval=1,
            max_request_header_size=HEADER_BYTES,
            max_request_body_size=max_body,
            # Nothing is put on disk: there may be none to write to.
            inbuf_overflow=2 * max_body,
            outbuf_overflow=64 << 20,
            asyncore_use_poll=True,
            log_socket_errors=False,
        )
        address = (listener.family, listener.type, listener.proto, listener.getsockname())
        super().__init__(app, _sock=listener, adj=adj, sockinfo=address, bind_socket=False)

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
        """Takes no more connections, answers what is here, then ends."""
        self.del_channel(self._map)
        self.socket.close()
        end = time.monotonic() + seconds
        while time.monotonic() < end and any(
            channel.requests or channel.total_outbufs_len for channel in list(self.active_channels.values())
        ):
            self.turn(0.05)
        self.task_dispatcher.shutdown(timeout=1)
