"""A way to Redis that can be cut: what goes through it meanwhile is neither answered nor refused."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from urllib.parse import urlsplit


class Relay:
    """Passes bytes between clients and one server, in a thread of its own."""

    def __init__(self, url: str) -> None:
        self.target = urlsplit(url)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.cut = False
        self.delay = 0.0
        self._peers: dict[socket.socket, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.listener, selectors.EVENT_READ)
        self._stopped = False
        self._thread = threading.Thread(target=self._pass, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The server's address, by way of this relay."""
        user = f"{self.target.username or ''}:{self.target.password}@" if self.target.password else ""
        return f"redis://{user}127.0.0.1:{self.listener.getsockname()[1]}/0"

    def stop(self) -> None:
        self._stopped = True
        self._thread.join(2)
        for each in (*self._peers, self.listener):
            each.close()

    def _pass(self) -> None:
        while not self._stopped:
            for key, _ in self._selector.select(0.05):
                if self.cut:
                    break  # what arrived stays where it is
                if key.fileobj is self.listener:
                    self._connect()
                elif isinstance(key.fileobj, socket.socket):
                    self._forward(key.fileobj)

    def _connect(self) -> None:
        client, _ = self.listener.accept()
        server = socket.create_connection((self.target.hostname or "127.0.0.1", self.target.port or 6379))
        for one, other in ((client, server), (server, client)):
            self._peers[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _forward(self, source: socket.socket) -> None:
        other = self._peers.get(source)
        if other is None:
            return
        if self.delay:
            time.sleep(self.delay)  # a slow network, not a wait for something
        try:
            data = source.recv(65536)
            other.sendall(data)
        except OSError:
            data = b""
        if not data:
            for each in (source, other):
                self._peers.pop(each, None)
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(each)
                each.close()
