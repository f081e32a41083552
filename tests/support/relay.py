"""The way from one part to Redis, which can be cut, slowed, refused, and lose answers of what was done."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
import time
from urllib.parse import urlsplit

from firmq.shared.config.redis_address import completed, key_prefix_of


class SpanForwarder:
    """Passes bytes between one part and the server, in a thread of its own."""

    def __init__(self, url: str, host: str = "127.0.0.1") -> None:
        """`url` is the server's; `host` is where the relay listens."""
        self.target = urlsplit(url)
        self.host = host
        self.cut = False
        """What comes is neither passed on nor refused."""
        self.refusing = False
        """Who connects is sent away, and who was connected too."""
        self.delay = 0.0
        self.swallow = 0
        """So many answers get lost: Redis did what it was told, and the connection breaks before it can say so."""
        self.swallowed = 0
        self._listener = socket.create_server((host, 0), backlog=64)
        self._peers: dict[socket.socket, socket.socket] = {}
        self._servers: set[socket.socket] = set()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._stopped = False
        self._thread = threading.Thread(target=self._pass, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The server's address, by way of this relay."""
        user = f"{self.target.username or ''}:{self.target.password}@" if self.target.password else ""
        address = f"redis://{user}{self.host}:{self._listener.getsockname()[1]}/0"
        return completed(address, key_prefix=key_prefix_of(self.target.geturl()))

    def heal(self) -> None:
        """As good as new."""
        self.cut = self.refusing = False
        self.delay, self.swallow = 0.0, 0

    def stop(self) -> None:
        self._stopped = True
        self._thread.join(2)
        for each in (*self._peers, self._listener):
            each.close()

    def _pass(self) -> None:
        while not self._stopped:
            if self.cut:
                time.sleep(0.02)  # what arrived stays where it is
                continue
            if self.refusing:
                for each in list(self._peers):
                    self._drop(each)
            for key, _ in self._selector.select(0.05):
                if key.fileobj is self._listener:
                    self._connect()
                elif isinstance(key.fileobj, socket.socket) and not self.cut:
                    self._forward(key.fileobj)

    def _connect(self) -> None:
        client, _ = self._listener.accept()
        server = None if self.refusing else self._reach()
        if server is None:
            _reset(client)
            return
        self._servers.add(server)
        for one, other in ((client, server), (server, client)):
            self._peers[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _reach(self) -> socket.socket | None:
        try:
            return socket.create_connection((self.target.hostname or "", self.target.port or 0), timeout=2)
        except OSError:
            return None

    def _forward(self, source: socket.socket) -> None:
        other = self._peers.get(source)
        if other is None:
            return
        if self.delay:
            time.sleep(self.delay)
        try:
            data = source.recv(65536)
            if data and self.swallow > 0 and source in self._servers:
                self.swallow -= 1
                self.swallowed += 1
                data = b""
            other.sendall(data)
        except OSError:
            data = b""
        if not data:
            self._drop(source)

    def _drop(self, one: socket.socket) -> None:
        other = self._peers.get(one)
        for each in (one, other):
            if each is None:
                continue
            self._peers.pop(each, None)
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(each)
            if each in self._servers:
                # In order: what the part has sent may still be carried out after it has gone.
                self._servers.discard(each)
                each.close()
            else:
                _reset(each)


def _reset(connection: socket.socket) -> None:
    """Closes it as a broken network does."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
