"""The data folder of the embedded server: its files, its password, and the repair of its append-only file.

The server process itself holds the lock file, so it is free exactly when no server uses the folder, however that server
ended. Two servers on one append-only file would destroy it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import secrets
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from firmq.shared.errors import SettingsError

log = logging.getLogger(__name__)

_LOCK_WITHIN = 3.0
"""Seconds to wait for the lock: the server of a killed launcher needs a moment to end."""
_BLOCK = 1 << 16


class DataFolder:
    """The files of a server on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.config_file = self.path / "redis.conf"
        self.log_file = self.path / "redis.log"
        self.url_file = self.path / "redis.url"
        self._password_file = self.path / "redis.password"

    def create(self) -> None:
        """Creates the folder with mode 700, or sets that mode on an existing data folder. Raises SettingsError.

        A new folder has a `.gitignore` for itself, because it holds a password and is often within a project.
        """
        try:
            if not self.path.exists():
                self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
                (self.path / ".gitignore").write_text("*\n")
            if self.path.stat().st_mode & 0o077:
                self._close()
        except OSError as error:
            raise SettingsError(f"DATA_DIR: {self.path} cannot be used: {error.strerror}") from error

    def _close(self) -> None:
        """Sets mode 700, as other users could read all tasks; refuses a folder with other files."""
        if any(self.path.iterdir()) and not self._password_file.exists():
            raise SettingsError(
                f"DATA_DIR: {self.path} is open to other users and contains other files: "
                f"run chmod 700 {self.path}, or set DATA_DIR to another folder"
            )
        self.path.chmod(0o700)
        log.warning("the data folder was open to other users; its mode is 700 now", extra={"folder": str(self.path)})

    def lock(self, within: float = _LOCK_WITHIN) -> int:
        """Returns a descriptor that locks the folder for as long as any process has it open. Raises SettingsError."""
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        deadline = time.monotonic() + within
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(descriptor)
                    text = f"another server uses {self.path}: stop it, or set DATA_DIR to another folder"
                    raise SettingsError(text) from None
                time.sleep(0.02)
            else:
                return descriptor

    def password(self) -> str:
        """Returns the server's password, generated at the first call and stored.

        A power loss can leave an empty file, and with an empty password the server would ask for none.
        """
        if not self._password_file.exists() or not self._password_file.read_text().strip():
            write_secret(self._password_file, secrets.token_urlsafe(24))
        return self._password_file.read_text().strip()

    def configure(self, options: Mapping[str, str]) -> None:
        """Writes the server's configuration, which contains the password and is readable by this user only."""
        write_secret(self.config_file, "".join(f"{name} {_quoted(value)}\n" for name, value in options.items()))

    def repair(self) -> str | None:
        """Removes zeros at the end of the append-only file, with which no server starts, and keeps a copy of the file.

        After a power loss a file system may keep the new length of a file and lose the data. Redis accepts a truncated
        file but refuses zeros; `redis-check-aof --fix` removes them, too. Returns a description of the repair, or None
        if there was none. Call it while no server runs.
        """
        file = self._last_written()
        if file is None or (size := file.stat().st_size) == (wanted := _size_without_zeros(file)):
            return None
        copy = self.path / f"{file.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}"
        shutil.copy2(file, copy)
        os.truncate(file, wanted)
        return (
            f"the append-only file ended in {size - wanted} zero bytes, as after a power loss: they were cut off "
            f"({file} is kept as {copy}), and the writes of the last second or two before it are lost"
        )

    def _last_written(self) -> Path | None:
        """Returns the file that is written to: since 7.0 the one with the highest number, before that the only one."""
        numbered = {
            int(found[1]): file
            for file in self.path.glob("appendonlydir/*.incr.aof")
            if (found := re.search(r"\.(\d+)\.incr\.aof$", file.name))
        }
        return numbered[max(numbered)] if numbered else next(self.path.glob("appendonly.aof"), None)


def write_secret(path: Path, text: str) -> None:
    """Writes a file atomically, readable by this user only from the start."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    draft.replace(path)


def _quoted(value: str) -> str:
    """Returns a value quoted for redis.conf, which empty values and paths with spaces need."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _size_without_zeros(file: Path) -> int:
    """Returns the size of the file in bytes, without zeros at its end."""
    with file.open("rb") as data:
        end = data.seek(0, os.SEEK_END)
        while end:
            begin = data.seek(max(0, end - _BLOCK))
            if kept := data.read(end - begin).rstrip(b"\0"):
                return begin + len(kept)
            end = begin
    return 0
