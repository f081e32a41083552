"""Counts how often each task was created, from all that Redis has ever written to its append-only file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tests.support.keys import keys


def creations(folder: Path) -> Counter[str]:
    """Returns how often each task was created. The file must not have been rewritten."""
    prefix = keys.rq_job("").encode()
    found: Counter[str] = Counter()
    for path in sorted((folder / "appendonlydir").glob("*.aof")):
        with path.open("rb") as file:
            for command in _commands(file):
                if command[0].upper() == b"HSET" and command[1].startswith(prefix) and b"created_at" in command[2::2]:
                    found[command[1].removeprefix(prefix).decode()] += 1
    return found


def _commands(file: BinaryIO) -> Iterator[list[bytes]]:
    """Yields the commands of a file; its last one may be cut off."""
    while head := file.readline():
        if not head.startswith(b"*"):
            continue  # a note of the time
        command = []
        for _ in range(int(head[1:])):
            size = file.readline()
            if not size.startswith(b"$") or not size.endswith(b"\n"):
                return
            command.append(file.read(int(size[1:])))
            file.read(2)
        yield command
