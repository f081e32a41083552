"""Payloads in a folder that all parts have: on one machine, or on a volume that several machines mount."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from firmq.shared.errors import PayloadUnavailable


class PayloadFolder:
    """One file for each object, in folders of the first two characters of their names."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def put(self, name: str, content: bytes) -> None:
        """Writes a file, durably and as a whole. Raises PayloadUnavailable."""
        path = self.folder / name
        unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        with self._translated(), self._removing(unfinished):
            # The folder itself is not made: it may be a volume that is not mounted.
            if path.parent != self.folder:
                path.parent.mkdir(exist_ok=True)
            with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
            _sync(path.parent)

    def get(self, name: str) -> bytes | None:
        """Returns the content of a file; None if there is none. Raises PayloadUnavailable."""
        with self._translated():
            try:
                return (self.folder / name).read_bytes()
            except FileNotFoundError:
                os.stat(self.folder)
                return None

    def delete(self, name: str) -> None:
        """Deletes a file, if there is one. Raises PayloadUnavailable."""
        with self._translated():
            (self.folder / name).unlink(missing_ok=True)

    def objects(self) -> Iterator[tuple[str, float]]:
        """Yields the name of each file, and when it was written. Raises PayloadUnavailable."""
        with self._translated():
            for each in sorted(os.listdir(self.folder)):
                if (self.folder / each).is_dir():
                    yield from self._files(each)

    def _files(self, folder: str) -> Iterator[tuple[str, float]]:
        with os.scandir(self.folder / folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    yield f"{folder}/{entry.name}", entry.stat().st_mtime

    @contextmanager
    def _removing(self, unfinished: Path) -> Iterator[None]:
        try:
            yield
        except OSError:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
            raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise PayloadUnavailable(
                f"the payload store {self.folder} cannot be used: {error.strerror or error}: check that the folder "
                "exists, is mounted, has room, and that this process may write to it"
            ) from error


def _sync(folder: Path) -> None:
    """Makes the names of a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
