"""A proxy before Redis that refuses scripts which declare no key, as some managed servers do."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO
from urllib.parse import urlsplit, urlunsplit

from tests.support.harness import free_port

SCRIPTS = frozenset({b"EVAL", b"EVALSHA", b"EVAL_RO", b"EVALSHA_RO", b"FCALL", b"FCALL_RO"})
REFUSED = b"-ERR EVAL and EVALSHA need at least one key\r\n"


@contextmanager
def keyed_scripts(url: str) -> Iterator[tuple[str, list[bytes]]]:
    """The address of such a proxy before the Redis of an address, and the names of commands that it refused."""
    address = urlsplit(url)
    refused: list[bytes] = []
    with socket.create_server(("127.0.0.1", free_port())) as listener:
        threading.Thread(target=_serve, args=(listener, (address.hostname, address.port), refused), daemon=True).start()
        credentials, at, _ = address.netloc.rpartition("@")
        here = f"{credentials}{at}127.0.0.1:{listener.getsockname()[1]}"
        yield urlunsplit(address._replace(netloc=here)), refused
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


def _serve(listener: socket.socket, server: tuple[str, int], refused: list[bytes]) -> None:
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            beyond = socket.create_connection(server)
            threading.Thread(target=_forward, args=(client, beyond, refused), daemon=True).start()
            threading.Thread(target=_return, args=(beyond, client), daemon=True).start()


def _forward(client: socket.socket, beyond: socket.socket, refused: list[bytes]) -> None:
    with suppress(OSError, ValueError), client, client.makefile("rb") as sent:
        while command := _command(sent):
            name, *arguments = command
            if name.upper() in SCRIPTS and arguments[1] == b"0":
                refused.append(name)
                client.sendall(REFUSED)
                break  # what is pipelined after it would get the replies of others
            packed = [b"*%d\r\n" % len(command), *(b"$%d\r\n%s\r\n" % (len(each), each) for each in command)]
            beyond.sendall(b"".join(packed))
    with suppress(OSError):
        beyond.shutdown(socket.SHUT_RDWR)


def _command(sent: BinaryIO) -> list[bytes]:
    """One command; [] at the end."""
    head = sent.readline()
    return [sent.read(int(sent.readline()[1:]) + 2)[:-2] for _ in range(int(head[1:]))] if head else []


def _return(beyond: socket.socket, client: socket.socket) -> None:
    with suppress(OSError), beyond:
        while part := beyond.recv(1 << 16):
            client.sendall(part)
    with suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)
