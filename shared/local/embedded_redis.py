"""Runs a Redis or Valkey server with its data on disk, for `make run` and for tests.

It is a real server, chosen by `server_binary`, that can be stopped, killed and started again on the same port and
data, so that a test of "Redis goes away" needs no imitation.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

from shared.errors import TaskQueueError
from shared.local.append_only_repair import repair
from shared.local.data_folder import DataFolder, write_secret
from shared.local.ports import LOOPBACK, free_port
from shared.local.processes import describe_exit, dies_with_us
from shared.local.server_binary import ServerBinary, choose_server
from shared.redis.client import connect

_POLL = 0.01
_LOG_LINES_SHOWN = 12
_TRIES_FOR_A_FREE_PORT = 5


class ServerDidNotStart(TaskQueueError):
    """Raised when the Redis server does not start."""


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
        patience: timedelta = timedelta(seconds=20),
    ) -> None:
        self.server = server or choose_server()
        self.host = host
        self.port = port
        self.folder = DataFolder(data_dir)
        self._may_move = port == 0
        self._options = dict(options or {})
        self._patience = patience
        self._process: subprocess.Popen[bytes] | None = None
        self.repaired: str | None = None
        """A description of the repair before the last start, if there was one."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Returns the URL with the password: for the environment of a service, never for its arguments."""
        return f"redis://:{self.folder.password()}@{self.host}:{self.port}/0"

    @property
    def pid(self) -> int | None:
        """The server's process id, or None while it is not running."""
        return self._process.pid if self._process and self.running else None

    @property
    def running(self) -> bool:
        """Whether the process is running; it may still be loading its data."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts the server and returns when it answers; does nothing if it runs."""
        if self.running:
            return
        for _ in range(_TRIES_FOR_A_FREE_PORT):
            if self._started():
                return
            self.port = 0
        raise ServerDidNotStart(self._explanation())

    def launch(self) -> None:
        """Starts the process and returns at once: the first half of `start`, for callers that cannot wait."""
        self.folder.create()
        self.folder.check(self.server)
        self.port = self.port or free_port(self.host)
        lock = self.folder.lock(timedelta(seconds=3))
        try:
            self.repaired = repair(self.folder.path)
            self.folder.configure(self._configuration())
            self._process = self._spawn(lock)
        finally:
            os.close(lock)  # the server has its own copy, and with it the lock

    def stop(self, patience: timedelta = timedelta(seconds=30)) -> None:
        """Stops the server with its data on disk, and waits for its end."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(patience.total_seconds())
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Ends the server as a crash would (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def restart(self) -> None:
        """Stops and starts the server: same port, same password, same data."""
        self.stop()
        self.start()

    def revive(self) -> str | None:
        """Restarts the server if it has died; returns a line for the log, or None if it is running."""
        if self._process is None or self.running:
            return None
        end = describe_exit(self._process.returncode)
        self.launch()
        repaired = f"; {self.repaired}" if self.repaired else ""
        return f"Redis {end}; starting it again (its log: {self.folder.log_file}){repaired}"

    def _started(self) -> bool:
        """Returns whether it started; False if another process took the port in the meantime."""
        self.launch()
        try:
            self._await_ready()
        except ServerDidNotStart:
            if self._may_move and self._port_was_taken():
                return False
            raise
        except BaseException:
            self.stop()
            raise
        return True

    def _spawn(self, lock: int) -> subprocess.Popen[bytes]:
        with self.folder.log_file.open("wb") as log:
            return subprocess.Popen(
                [self.server.path, self.folder.config_file],
                cwd=self.folder.path,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(lock,),
                start_new_session=True,  # or Ctrl-C would stop it before the workers have given back their tasks
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

    def _await_ready(self) -> None:
        deadline = time.monotonic() + self._patience.total_seconds()
        with connect(self.url, timeout=1, retries=0, check_format=False) as client:
            while not self._answers(client):
                if not self.running:
                    raise ServerDidNotStart(self._explanation())
                if time.monotonic() > deadline:
                    self.kill()
                    raise ServerDidNotStart(self._explanation())
                time.sleep(_POLL)
        self.folder.record(self.server)
        write_secret(self.folder.url_file, self.url + "\n")

    def _answers(self, client: redis.Redis) -> bool:
        """Returns whether this server answers, which the password proves. Waits until its data is loaded."""
        while True:
            try:
                return bool(client.ping())
            except redis.exceptions.BusyLoadingError:
                time.sleep(_POLL)
            except redis.RedisError:
                return False

    def _explanation(self) -> str:
        end = describe_exit(self._process.returncode) if self._process else "did not run"
        head = f"{self.server} {end} before it answered on port {self.port}"
        if written_by := self.folder.written_by():
            head += f" (the data in {self.folder.path} was last written by {written_by[0]})"
        return "\n  ".join([head + "; its last log lines:", *self._log_lines()[-_LOG_LINES_SHOWN:]])

    def _log_lines(self) -> list[str]:
        return self.folder.log_file.read_text(errors="replace").splitlines()

    def _port_was_taken(self) -> bool:
        return any("already in use" in line for line in self._log_lines())
