"""A PostgreSQL server of the tests, in a folder of its own; it never runs as root."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import psycopg
import pytest

from firmq.shared.child_processes import dies_with_us

MAX_CONNECTIONS = 100
"""As the server has by default."""
_READY_WITHIN = 60


def programs() -> Path | None:
    """The folder with the programs of the newest installed version."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    found = installed[-1] if installed else shutil.which("postgres")
    return Path(found).parent if found else None


class PostgreSQL:
    """A server that listens on a socket in its folder; the user `postgres` needs no password."""

    def __init__(self, bin_folder: Path) -> None:
        # Not in the folder of pytest, which only its owner may enter; a socket's path has at most 107 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="pg"))
        self.bin_folder = bin_folder
        # It refuses to run as root.
        self._user: dict[str, Any] = {"user": "nobody", "extra_groups": ()} if os.geteuid() == 0 else {}

    def __enter__(self) -> Self:
        if self._user:
            shutil.chown(self.folder, self._user["user"])
        data = self.folder / "data"
        initdb = (self.bin_folder / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        subprocess.run(initdb, check=True, capture_output=True, cwd="/", **self._user)
        options = {
            "listen_addresses": "",
            "unix_socket_directories": self.folder,
            "max_connections": MAX_CONNECTIONS,
            "fsync": "off",
        }
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [
                    self.bin_folder / "postgres",
                    "-D",
                    data,
                    *(part for name, value in options.items() for part in ("-c", f"{name}={value}")),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
                preexec_fn=dies_with_us(),
                **self._user,
            )
        until = time.monotonic() + _READY_WITHIN
        while True:
            try:
                self.connect().close()
            except psycopg.OperationalError:
                if self.process.poll() is not None or time.monotonic() > until:
                    raise AssertionError((self.folder / "log").read_text()) from None
                time.sleep(0.05)
            else:
                return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(2)  # ends connections
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[Any, ...]]:
        """A connection of an administrator, for whom three are reserved."""
        return psycopg.connect(host=str(self.folder), user="postgres", dbname=database, autocommit=True)

    def create(self, database: str) -> None:
        """Makes an empty database of this name."""
        with self.connect() as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')
            connection.execute(f'CREATE DATABASE "{database}"')

    def connections(self, database: str) -> list[tuple[Any, ...]]:
        """The state and the last query of each client of a database."""
        with self.connect() as connection:
            return connection.execute(
                "SELECT state, query FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()", (database,)
            ).fetchall()


@contextmanager
def running_postgresql() -> Iterator[PostgreSQL]:
    """A server. Skips the test where none is installed; fails it in CI."""
    found = programs()
    if found is None and os.environ.get("CI") != "true":
        pytest.skip("PostgreSQL is not installed")
    assert found is not None, "PostgreSQL is not installed: apt-get install postgresql"
    with PostgreSQL(found) as server:
        yield server
