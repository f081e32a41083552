"""The time-outs (in seconds) and buffer sizes (in bytes) of the dashboard's HTTP server."""

from __future__ import annotations

from firmq.shared.http import server


class Server(server.Server):
    """The event loop of all connections."""

    connections = 500
    receive_seconds = 10
    memory = 32 << 20


class GunicornWorker(server.GunicornWorker):
    """The gunicorn worker process."""

    server_class = Server
