"""A PostgreSQL server of our own, which can be killed and frozen."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError

from tests.support.harness import free_port, wait_until

USER = "postgres"


def programs() -> Path | None:
    """Returns the folder of the newest PostgreSQL that is installed, or None."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: float(path.parts[-3]))
    on_path = shutil.which("postgres")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


class PostgreSQL:
    """A server with its data in a folder, ended with the block that it is used in."""

    def __init__(self, folder: Path, *options: str) -> None:
        """`options` are settings of the server, such as `shared_buffers=1GB`."""
        found = programs()
        if found is None:
            raise SystemExit("PostgreSQL is not installed, or give --database")
        self.programs = found
        self.folder = folder
        self.options = options
        self.port = free_port()
        self.url = f"postgresql+psycopg://{USER}@127.0.0.1:{self.port}/postgres"
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            shutil.chown(self.folder, USER)
        if not (self.folder / "PG_VERSION").exists():
            self._run("initdb", "-D", str(self.folder), "-U", USER, "--auth=trust", "-E", "UTF8").wait()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process and self.process.poll() is None:
            self._signal(signal.SIGCONT)
            self.process.send_signal(signal.SIGINT)
            self.process.wait()

    def start(self) -> None:
        """Starts the server, and waits until it answers."""
        settings = [
            part for each in (f"port={self.port}", "listen_addresses=127.0.0.1", *self.options) for part in ("-c", each)
        ]
        self.process = self._run("postgres", "-D", str(self.folder), "-k", str(self.folder), *settings)
        wait_until(self.answers, "PostgreSQL answers")

    def answers(self) -> bool:
        """Returns whether the server takes connections."""
        engine = create_engine(self.url, connect_args={"connect_timeout": 1})
        try:
            with suppress(OperationalError), engine.connect():
                return True
        finally:
            engine.dispose()
        return False

    def kill(self) -> None:
        """Ends the server and all its processes by SIGKILL."""
        self._signal(signal.SIGKILL)
        if self.process:
            self.process.wait()

    def freeze(self) -> None:
        """Stops all its processes until `thaw`."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets a frozen server go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self.process:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def _run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        account = pwd.getpwnam(USER) if os.geteuid() == 0 else None  # it does not run as root
        return subprocess.Popen(
            [str(self.programs / program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
            start_new_session=True,
            user=account and account.pw_uid,
            group=account and account.pw_gid,
        )
