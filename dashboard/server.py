"""How long the dashboard's server waits for those who are slow, and how much of theirs it keeps."""

from __future__ import annotations

from shared.http import server


class Server(server.Server):
    """The loop that reads and writes all connections."""

    connections = 500
    receive_seconds = 10
    idle_seconds = 15
    unread_bodies = 16 << 20
    untaken_answers = 32 << 20


class GunicornWorker(server.GunicornWorker):
    """The process of gunicorn's."""

    server_class = Server
