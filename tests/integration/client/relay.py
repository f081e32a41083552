"""A gateway's neighbour that loses answers: it hands requests on and cuts the connection as a test wants."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class LossyRelay:
    """Hands bytes on; of the first `lose` connections with an answer it cuts off all behind `keep` bytes of that."""

    def __init__(self, port: int, *, lose: int, keep: int = 0) -> None:
        self.target = port
        self.lose = lose
        self.keep = keep
        self.connections = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.listener.close()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            keep = self.keep if self.connections <= self.lose else None
            gateway = socket.create_connection(("127.0.0.1", self.target))
            threading.Thread(target=_carry, args=(caller, gateway, None), daemon=True).start()
            threading.Thread(target=_carry, args=(gateway, caller, keep), daemon=True).start()


def _carry(source: socket.socket, target: socket.socket, keep: int | None) -> None:
    left = keep
    with suppress(OSError):
        while data := source.recv(65536):
            if left is not None:
                target.sendall(data[:left])
                left -= len(data)
                if left <= 0:
                    for each in (source, target):
                        each.shutdown(socket.SHUT_RDWR)
                    return
            else:
                target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
