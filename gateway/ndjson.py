"""A request of many lines (application/x-ndjson), read and answered line by line, never held as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from shared import strict_json
from shared.errors import InvalidJSON

MEDIA_TYPE = "application/x-ndjson"
READ = 64 << 10


class Source(Protocol):
    """What WSGI gives to read from."""

    def read(self, size: int, /) -> bytes: ...


class Lines:
    """The lines of a body, in groups as they arrive; empty ones are passed over."""

    def __init__(self, source: Source, longest: int, max_depth: int) -> None:
        self.source = source
        self.longest = longest
        self.max_depth = max_depth

    def groups(self) -> Iterator[list[bytes | None]]:
        """Groups of lines; in place of a line that is too long, None. Raises OSError when the sender is gone."""
        rest, skipping = b"", False
        while data := self.source.read(READ):
            *whole, rest = (rest + data).split(b"\n")
            lines: list[bytes | None] = [line for line in whole if line.strip()]
            if skipping and whole:
                lines, skipping = ([None, *lines[1:]] if whole[0].strip() else [None, *lines]), False
            lines = [line if line is None or len(line) <= self.longest else None for line in lines]
            if len(rest) > self.longest:
                rest, skipping = b"x", True
            if lines:
                yield lines
        if rest.strip():
            yield [None if skipping else rest]

    def parse(self, line: bytes | None) -> Any:
        """The value of a line. Raises InvalidJSON."""
        if line is None:
            raise InvalidJSON(f"a line has more than {self.longest} bytes: send less, or where the data is")
        return strict_json.parse(line, max_depth=self.max_depth)
