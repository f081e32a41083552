"""The folder that outlives the server: its data, its password, and a note of which server wrote it.

The lock file is held by the server process itself, so it is free exactly when no server uses the folder, however
that server ended. Two servers on one append-only file would destroy it.
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
    """Everything that a server leaves on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.config_file = self.path / "redis.conf"
        self.log_file = self.path / "redis.log"
        self.url_file = self.path / "redis.url"
        self._lock_file = self.path / "lock"
        self._password_file = self.path / "redis.password"
        self._written_by_file = self.path / "written-by.json"

    def create(self) -> None:
        """Makes the folder, for this user only; closes one of ours to others. Raises SettingsError."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise SettingsError(f"DATA_DIR: {self.path} cannot be made: {error.strerror}") from error
        if self.path.stat().st_mode & 0o077:
            self._close()

    def _close(self) -> None:
        """Closes the folder to others, who could read all tasks; refuses one of other files, not ours to close."""
        remedy = f"run chmod 700 {self.path}, or set DATA_DIR to another folder"
        if any(self.path.iterdir()) and not self._password_file.exists():
            raise SettingsError(f"DATA_DIR: {self.path} is open to other users, and holds other files: {remedy}")
        try:
            self.path.chmod(0o700)
        except OSError as error:
            raise SettingsError(f"DATA_DIR: {self.path} is open to other users: {remedy} ({error.strerror})") from error
        log.warning("the data folder was open to other users; its mode is 700 now", extra={"folder": str(self.path)})

    def lock(self, patience: timedelta) -> int:
        """A descriptor that keeps others out for as long as any process has it open.

        Waits a little, because the server of a launcher that was killed needs a moment to end.
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
        """The server's password, made on the first call and kept."""
        if not self._password_file.exists():
            write_secret(self._password_file, secrets.token_urlsafe(24))
        return self._password_file.read_text().strip()

    def check(self, server: ServerBinary) -> None:
        """Refuses a server that would not see the data which is here."""
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
        """Name and version of the server that last ran here."""
        try:
            note = json.loads(self._written_by_file.read_text())
            major, minor, patch = note["version"]
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise SettingsError(f"{self._written_by_file} is damaged: remove it if the data is not needed") from error
        return f"{note['engine']} {major}.{minor}.{patch}", (major, minor, patch)

    def record(self, server: ServerBinary) -> None:
        """Notes that this server has written here."""
        self._written_by_file.write_text(json.dumps({"engine": server.engine, "version": list(server.version)}) + "\n")

    def configure(self, options: Mapping[str, str]) -> None:
        """Writes the server's configuration, which holds the password and is therefore secret."""
        lines = [f"{name} {_quoted(value)}" for name, value in options.items()]
        write_secret(self.config_file, "\n".join(lines) + "\n")


def write_secret(path: Path, text: str) -> None:
    """Puts text into a file that never, not for an instant, could be read by others or was half written."""
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
    """A value as redis.conf wants it; the quotes matter for an empty one and for a path with blanks."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
