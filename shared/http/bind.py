"""Binds ports, raises the limit of open files, and checks the host names of requests."""

from __future__ import annotations

import errno
import ipaddress
import resource
import socket
from collections.abc import Collection
from urllib.parse import urlsplit

from firmq.shared.config.settings import exit_with

LOOPBACK = "127.0.0.1"
BACKLOG = 2048
FILES = 4096
"""Open files of a process with few connections; systems often have a soft limit of 1024 and a higher hard limit."""
INSIDE = (".localhost", ".local", ".internal", ".svc", ".cluster.local", ".home.arpa")
"""Suffixes of names that do not exist in the public DNS."""


def is_loopback(host: str) -> bool:
    """Returns whether an address is reachable from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def answers_to(host: str, bind_host: str, allowed: Collection[str]) -> bool:
    """Returns whether an unauthenticated request with this Host header is accepted.

    Prevents DNS rebinding: a foreign page can make its own name point here, and a browser then treats it as a page of
    this site. That is impossible with an address, a name without a dot, or a name of an internal network. A listener on
    loopback accepts only names of this machine. `allowed` are further names.
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
    """Returns a listening socket. If the port cannot be bound, prints the remedy and exits with status 2."""
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
            f"stop the process on this port, or set {setting} or BIND_HOST"
        )
    return listener


def free_port(host: str = LOOPBACK) -> int:
    """Returns a free port. Another process may take it before it is used, so be ready to retry."""
    with _unbound(host) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def port_problem(host: str, port: int) -> str | None:
    """Returns why this port is unavailable, or None if it is free."""
    with _unbound(host) as probe:
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return "is in use by another program"
            return f"cannot be used ({error.strerror or error})"
    return None


def _unbound(host: str) -> socket.socket:
    """Returns a socket that, like a server's, binds in spite of connections in TIME_WAIT."""
    probe = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return probe


def raise_file_limit(wanted: int = FILES) -> int:
    """Raises the limit of open files to `wanted` as far as allowed. Returns the resulting limit, at most `wanted`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else min(wanted, soft)


def shown(host: str, listener: socket.socket) -> str:
    """Returns the address as host:port, with brackets for IPv6."""
    return f"[{host}]:{listener.getsockname()[1]}" if ":" in host else f"{host}:{listener.getsockname()[1]}"
