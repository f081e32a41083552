"""The data folder of the embedded server: its data, its password, and the version that wrote it.

The server process itself holds the lock file, so it is free exactly when no server uses the folder, however that server
ended. Two servers on one append-only file would destroy it.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import secrets
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from shared.errors import SettingsError
from shared.local.server_binary import ServerBinary, Version

log = logging.getLogger(__name__)

# From this version on the append-only data is a folder of several files; an older server does not see it, starts
# empty, and says nothing.
_SEVERAL_FILES: Version = (7, 0, 0)


class DataFolder:
    """The files of a server on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.config_file = self.path / "redis.conf"
        self.log_file = self.path / "redis.log"
        self.url_file = self.path / "redis.url"
        self._lock_file = self.path / "lock"
        self._password_file = self.path / "redis.password"
        self._written_by_file = self.path / "written-by.json"

    def create(self) -> None:
        """Creates the folder with mode 700, or sets that mode on an existing data folder. Raises SettingsError."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise SettingsError(f"DATA_DIR: {self.path} cannot be made: {error.strerror}") from error
        if self.path.stat().st_mode & 0o077:
            self._close()

    def _close(self) -> None:
        """Sets mode 700, as other users could read all tasks; refuses a folder with other files."""
        remedy = f"run chmod 700 {self.path}, or set DATA_DIR to another folder"
        if any(self.path.iterdir()) and not self._password_file.exists():
            raise SettingsError(f"DATA_DIR: {self.path} is open to other users and contains other files: {remedy}")
        try:
            self.path.chmod(0o700)
        except OSError as error:
            raise SettingsError(f"DATA_DIR: {self.path} is open to other users: {remedy} ({error.strerror})") from error
        log.warning("the data folder was open to other users; its mode is 700 now", extra={"folder": str(self.path)})

    def lock(self, patience: timedelta) -> int:
        """Returns a descriptor that locks the folder for as long as any process has it open.

        Waits for up to `patience`, because the server of a killed launcher needs a moment to end.
        """
        descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT, 0o600)
        deadline = time.monotonic() + patience.total_seconds()
        while not _locked(descriptor):
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise SettingsError(f"another server uses {self.path}: stop it, or set DATA_DIR to another folder")
            time.sleep(0.02)
        return descriptor

    def password(self) -> str:
        """Returns the server's password, generated at the first call and stored."""
        if not self._password_file.exists():
            write_secret(self._password_file, secrets.token_urlsafe(24))
        return self._password_file.read_text().strip()

    def check(self, server: ServerBinary) -> None:
        """Raises SettingsError if this server cannot read the existing data."""
        written_by = self.written_by()
        if written_by is None:
            return
        name, version = written_by
        if version >= _SEVERAL_FILES > server.version:
            raise SettingsError(
                f"the data in {self.path} was written by {name}; {server} cannot read it and would start empty: "
                "use version 7.0 or newer, or set DATA_DIR to another folder"
            )

    def written_by(self) -> tuple[str, Version] | None:
        """Returns name and version of the server that last ran here, or None."""
        try:
            note = json.loads(self._written_by_file.read_text())
            major, minor, patch = note["version"]
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise SettingsError(f"{self._written_by_file} is damaged: remove it if the data is not needed") from error
        return f"{note['engine']} {major}.{minor}.{patch}", (major, minor, patch)

    def record(self, server: ServerBinary) -> None:
        """Records that this server has written here."""
        self._written_by_file.write_text(json.dumps({"engine": server.engine, "version": list(server.version)}) + "\n")

    def configure(self, options: Mapping[str, str]) -> None:
        """Writes the server's configuration, which contains the password and is readable by this user only."""
        lines = [f"{name} {_quoted(value)}" for name, value in options.items()]
        write_secret(self.config_file, "\n".join(lines) + "\n")


def write_secret(path: Path, text: str) -> None:
    """Writes a file atomically, readable by this user only from the start."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    draft.replace(path)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _quoted(value: str) -> str:
    """Returns a value quoted for redis.conf, which empty values and paths with spaces need."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
