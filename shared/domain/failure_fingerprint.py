"""What a task died of, told apart from what else its message says.

Two dead letters have the same cause when their type, error class, place in the code and message agree, once numbers
and ids are taken out of the message. This file knows nothing of Redis: the executor adds `place` and `pattern` to the
error that it reports, and the scripts keep an index by them (`cause_of` in the prelude).
"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType

LONGEST = 300
"""Characters of a message that are compared."""

_WORD = re.compile(r"[\w-]+")
_HEX = re.compile(r"[0-9a-fA-F-]{8,}")
_ROW = re.compile(r"#(?:[.:,/+@]#)+")
_LONG_QUOTE = re.compile(r"""(["'])[^"']{40,}\1""")
_NAME = type.__dict__["__name__"]
_INSTRUMENTATION = str(Path(__file__).parents[1] / "observability" / "instrumentation.py")
_LIBRARIES = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib")})


def pattern(message: str) -> str:
    """A message without what differs from one failure to the next: words with a digit in them become `#`."""
    text = " ".join(message[:LONGEST].split())
    text = _LONG_QUOTE.sub(r"\1…\1", text)
    return _ROW.sub("#", _WORD.sub(_without_number, text))


def place(traceback: TracebackType | None, runner: str = "") -> str:
    """Where an error arose, as `module.function`: the innermost frame that is no library's, if there is one.

    Without a line number, so that a cause outlives an edit elsewhere in the file. Frames of the file `runner` do not
    count, nor does what stands before a library while a task is traced.
    """
    frames = [each for each in _frames(traceback) if each.tb_frame.f_code.co_filename not in (runner, _INSTRUMENTATION)]
    own = [each for each in frames if not each.tb_frame.f_code.co_filename.startswith((*_LIBRARIES, "<"))]
    found = (own or frames)[-1:]
    return "".join(f"{each.tb_frame.f_globals.get('__name__', '?')}.{_function(each)}" for each in found)[:200]


def class_name(value: object) -> str:
    """The name of its class, whatever a metaclass makes of `__name__`."""
    return str(_NAME.__get__(type(value)))


def traits(error: BaseException, message: str, runner: str) -> Mapping[str, str]:
    """What the report of a final failure carries besides the error's class and message."""
    return {"place": place(error.__traceback__, runner), "pattern": pattern(message)}


def _function(frame: TracebackType) -> str:
    return frame.tb_frame.f_code.co_qualname


def _frames(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _without_number(match: re.Match[str]) -> str:
    word = match[0]
    return "#" if any(mark.isdigit() for mark in word) or _HEX.fullmatch(word) else word
