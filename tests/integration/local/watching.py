"""Starting a process and waiting for what it does, never longer than a deadline."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import redis

ROOT = Path(__file__).parents[3]
DEADLINE = 90.0


def eventually(what: str, happened: Callable[[], bool]) -> None:
    """Returns as soon as it has happened; fails with its name when the deadline is over."""
    deadline = time.monotonic() + DEADLINE
    while not happened():
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen within {DEADLINE:g} s: {what}")
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    """Whether a process has ended, be it that nobody has asked for its status yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class Program:
    """A process in a session of its own whose output is gathered; its whole family is gone at the end of the test."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path = ROOT) -> None:
        self._process = subprocess.Popen(
            argv,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self._family: list[psutil.Process] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(psutil.NoSuchProcess):
            self._family += psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        for process in self._family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait(DEADLINE)
        self._reader.join(DEADLINE)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        """All that it wrote so far."""
        return "".join(self._lines)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)

    def await_output(self, text: str, times: int = 1) -> None:
        """Returns when it has written this text so often; shows what it wrote instead when it ended without."""

        def written() -> bool:
            return self.output.count(text) >= times

        eventually(f"the output {text!r}", lambda: written() or self._process.poll() is not None)
        self._reader.join(0 if self._process.poll() is None else DEADLINE)
        assert written(), self.output

    def await_end(self) -> int:
        """Its exit status."""
        status = self._process.wait(DEADLINE)
        self._reader.join(DEADLINE)
        return status

    def family(self) -> list[psutil.Process]:
        """Its children and theirs; remembered, so that none can be left over by a failing test."""
        self._family = psutil.Process(self._process.pid).children(recursive=True)
        return self._family

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            self._lines.extend(output)


def redis_answers(client: redis.Redis) -> bool:
    """Whether the server behind a client is up."""
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
