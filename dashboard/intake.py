"""How long the dashboard's server waits for those who are slow, and how much of theirs it keeps."""

from __future__ import annotations

import socket
from typing import Any

from shared import intake

CONNECTIONS = 500


class Server(intake.Server):
    """The loop that reads and writes all connections."""

    receive_seconds = 10
    idle_seconds = 15
    unread_bodies = 16 << 20
    untaken_answers = 32 << 20

    def __init__(self, app: Any, listener: socket.socket, threads: int) -> None:
        super().__init__(app, listener, threads, CONNECTIONS)


class Intake(intake.Intake):
    """The process of gunicorn's."""

    server_class = Server
