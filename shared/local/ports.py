"""Checks TCP ports before anything is started."""

from __future__ import annotations

import errno
import socket

LOOPBACK = "127.0.0.1"


def free_port(host: str = LOOPBACK) -> int:
    """Returns a free port. Another process may take it before it is used, so be ready to retry."""
    with _listening_socket(host) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def port_problem(host: str, port: int) -> str | None:
    """Returns why this port is unavailable, or None if it is free."""
    with _listening_socket(host) as probe:
        try:
            probe.bind((host, port))
        except OSError as error:
            return _in_words(error)
    return None


def _listening_socket(host: str) -> socket.socket:
    probe = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    # As servers do: connections in TIME_WAIT do not block the port.
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return probe


def _in_words(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "is in use by another program"
    if error.errno == errno.EACCES:
        return "requires privileges that this user does not have"
    return f"cannot be used ({error.strerror or error})"
