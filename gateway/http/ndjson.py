"""A request of many lines (application/x-ndjson), read and answered line by line, never held as a whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from gateway.http import errors
from gateway.http.errors import Refusal
from shared.domain import strict_json
from shared.errors import InvalidJSON

MEDIA_TYPE = "application/x-ndjson"
READ = 256 << 10
"""Bytes that are looked at together, if they are here."""
PATIENCE = 20.0
"""Seconds within which the next whole line must be here (empty ones do not count), and answers be read."""


class Source(Protocol):
    """What WSGI gives to read from."""

    def read(self, size: int, /) -> bytes: ...


class Lines:
    """The lines of a body, in groups as they arrive; empty ones are passed over."""

    def __init__(
        self, source: Source, longest: int, max_depth: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.source = source
        self.longest = longest
        self.max_depth = max_depth
        self.clock = clock
        self._here: Callable[[], bool] = getattr(source, "here", lambda: False)

    def here(self) -> bool:
        """Whether there is more to read without waiting for the sender."""
        return self._here()

    def groups(self) -> Iterator[list[bytes | None]]:
        """Groups of lines; in place of a line that is too long, None.

        Raises OSError when the sender is gone, and Refusal when it is too slow or sends what cannot be read.
        """
        rest, skipping = b"", False
        since = self.clock()
        while data := self._read():
            *whole, rest = (rest + data).split(b"\n")
            lines: list[bytes | None] = [line for line in whole if line.strip()]
            if skipping and whole:
                lines, skipping = ([None, *lines[1:]] if whole[0].strip() else [None, *lines]), False
            lines = [line if line is None or len(line) <= self.longest else None for line in lines]
            if len(rest) > self.longest:
                rest, skipping = b"x", True
            if lines:
                yield lines
                since = self.clock()
            elif self.clock() - since > PATIENCE:
                raise Refusal(errors.TOO_SLOW, f"no whole line came for {PATIENCE:g} seconds: send the rest again")
        if rest.strip():
            yield [None if skipping else rest]

    def _read(self) -> bytes:
        parts = [self.source.read(READ)]
        size = len(parts[0])
        while parts[-1] and size < READ and self.here():
            parts.append(self.source.read(READ - size))
            size += len(parts[-1])
        return b"".join(parts)

    def parse(self, line: bytes | None) -> Any:
        """The value of a line. Raises InvalidJSON."""
        if line is None:
            raise InvalidJSON(f"a line has more than {self.longest} bytes: send less, or where the data is")
        return strict_json.parse(line, max_depth=self.max_depth)
