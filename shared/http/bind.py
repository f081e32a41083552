"""Taking a port, having room for what comes there, and knowing whom a listener lets in."""

from __future__ import annotations

import ipaddress
import resource
import socket
from collections.abc import Collection
from urllib.parse import urlsplit

from shared.config.settings import exit_with

BACKLOG = 2048
FILES = 4096
"""Files and connections of a process that serves few: systems often allow 1024 at first, and more to who asks."""
INSIDE = (".localhost", ".local", ".internal", ".svc", ".cluster.local", ".home.arpa")
"""Ends of names that the public DNS has for nobody."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def answers_to(host: str, bind_host: str, allowed: Collection[str]) -> bool:
    """Whether somebody who is not asked who he is may ask under this name, as the header Host has it.

    A page elsewhere can have a name of its own made to point here, and to a browser it is then a page of this site.
    With an address, a name without a dot or one of a network's own that cannot be done. What listens on loopback has
    this machine's names only. `allowed` are further names.
    """
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        name = ""
    if name in {each.lower() for each in allowed}:
        return True
    if is_loopback(bind_host):
        return is_loopback(name)
    return bool(name) and ("." not in name or name.endswith(INSIDE) or _is_address(name))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


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


def raise_file_limit(wanted: int = FILES) -> int:
    """Lets this process have so many files and connections open, as far as it may; how many of these it may now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else min(wanted, soft)


def shown(host: str, listener: socket.socket) -> str:
    """The address as a person types it."""
    return f"[{host}]:{listener.getsockname()[1]}" if ":" in host else f"{host}:{listener.getsockname()[1]}"
