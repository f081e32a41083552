"""Connections and forks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context

import pytest

from firmq.shared.client.connections import Connections


class Answering(BaseHTTPRequestHandler):
    """Answers with the port of the caller, which tells connections apart."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = str(self.client_address[1]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # it is the name in the base class
        """Writes nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def ask(connections: Connections) -> bytes:
    return connections.request("GET", "/", None, {}, 5.0, reuse=True).body


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_process_gets_connections_of_its_own(port: int) -> None:
    connections = Connections("127.0.0.1", port, None)
    first = ask(connections)
    fork = get_context("fork")
    answers = fork.SimpleQueue()
    with connections._lock:  # as another thread may hold it at that moment
        child = fork.Process(target=lambda: answers.put(ask(connections)), daemon=True)
        child.start()
    child.join(10)
    assert child.exitcode == 0
    assert answers.get() != first
    assert ask(connections) == first
    connections.close()
