"""The logs of all services as one, each line under the name of who wrote it."""

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
    """Writes lines with aligned names in front, and remembers each service's last ones.

    A reader that went away (`make run | head`, a closed terminal) must not keep services from being stopped in
    order, so from then on it is silent.
    """

    def __init__(self, out: TextIO, names: Iterable[str], *, colour: bool) -> None:
        self._out = out
        self._colours = dict(zip(names, itertools.cycle(_COLOURS), strict=False)) if colour else {}
        self._width = max(map(len, names), default=0)
        self._last = {name: deque[str](maxlen=_LINES_REMEMBERED) for name in names}

    def line(self, name: str, text: str) -> None:
        """One line of one service."""
        self._last[name].append(text)
        self.write(f"{self._prefix(name)} {text}\n")

    def write(self, text: str) -> None:
        """Text as it is."""
        with suppress(OSError, ValueError):  # ValueError: the stream was closed
            self._out.write(text)
            self._out.flush()

    def last_lines(self, name: str) -> list[str]:
        """What a service wrote last."""
        return list(self._last[name])

    def _prefix(self, name: str) -> str:
        padded = f"{name:<{self._width}} |"
        colour = self._colours.get(name)
        return f"\x1b[{colour}m{padded}\x1b[0m" if colour else padded


class LineCutter:
    """Cuts a stream of bytes into lines of text; a line without end is cut at a length, not gathered for ever."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """The lines that are complete now."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            lines.append(self._rest)
            self._rest = b""
        return [_text(line) for line in lines]

    def rest(self) -> list[str]:
        """The unfinished line at the end, if there is one."""
        return [_text(self._rest)] if self._rest else []


def wants_colour(out: TextIO, env: Mapping[str, str] = os.environ) -> bool:
    """Colour is for people at a terminal who did not refuse it (no-color.org)."""
    return out.isatty() and not env.get("NO_COLOR") and env.get("TERM") != "dumb"


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r")
