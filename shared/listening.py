"""Taking a port, having room for what comes there, and knowing whom a listener lets in."""

from __future__ import annotations

import ipaddress
import resource
import socket

from shared.settings import exit_with

BACKLOG = 2048
FILES = 4096
"""Files and connections of a process that serves few: systems often allow 1024 at first, and more to who asks."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int, part: str, setting: str) -> socket.socket:
    """A listening socket; when the port cannot be had, the end of the process with status 2 and one line that helps."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        exit_with(
            f"the {part} cannot listen on {host}:{port} ({error.strerror}): "
            f"stop what is there, or set {setting} or BIND_HOST"
        )
    return listener


def room_for_files(wanted: int = FILES) -> int:
    """Lets this process have so many files and connections open, as far as it may; how many of these it may now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else min(wanted, soft)


def shown(host: str, listener: socket.socket) -> str:
    """The address as a person types it."""
    return f"[{host}]:{listener.getsockname()[1]}" if ":" in host else f"{host}:{listener.getsockname()[1]}"
