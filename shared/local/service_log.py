"""Merges the logs of all services; each line starts with the name of its service."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TextIO

_COLOURS = ("36", "33", "35", "32", "34", "31")
_LINES_REMEMBERED = 20
_LONGEST_LINE = 64 * 1024


class ServiceLog:
    """Writes lines after aligned names, and keeps the last lines of each service.

    If the reader is gone (`make run | head`, a closed terminal), it writes no more, so that services still stop in
    order.
    """

    def __init__(self, out: TextIO, names: Iterable[str], *, colour: bool) -> None:
        self._out = out
        self._colours = dict(zip(names, itertools.cycle(_COLOURS), strict=False)) if colour else {}
        self._width = max(map(len, names), default=0)
        self._last = {name: deque[str](maxlen=_LINES_REMEMBERED) for name in names}

    def line(self, name: str, text: str) -> None:
        """Writes one line of a service."""
        self._last[name].append(text)
        self.write(f"{self._prefix(name)} {text}\n")

    def write(self, text: str) -> None:
        """Writes text unchanged."""
        with suppress(OSError, ValueError):  # ValueError: the stream was closed
            self._out.write(text)
            self._out.flush()

    def last_lines(self, name: str) -> list[str]:
        """Returns the last lines of a service."""
        return list(self._last[name])

    def _prefix(self, name: str) -> str:
        padded = f"{name:<{self._width}} |"
        colour = self._colours.get(name)
        return f"\x1b[{colour}m{padded}\x1b[0m" if colour else padded


class LineCutter:
    """Cuts a stream of bytes into lines of text of bounded length."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """Returns the lines that are complete now."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            lines.append(self._rest)
            self._rest = b""
        return [_text(line) for line in lines]

    def rest(self) -> list[str]:
        """Returns the incomplete last line, if there is one."""
        return [_text(self._rest)] if self._rest else []


def wants_colour(out: TextIO, env: Mapping[str, str] = os.environ) -> bool:
    """Returns whether to use colour: on a terminal without NO_COLOR (no-color.org)."""
    return out.isatty() and not env.get("NO_COLOR") and env.get("TERM") != "dumb"


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r")
