"""Failure fingerprints: the identity of a cause of failure.

Two dead letters have the same fingerprint when their type, error class, place in the code and message agree, after
numbers and ids are taken out of the message. Independent of Redis: the executor adds `place` and `pattern` to the error
that it reports, and the scripts keep an index by them (`fingerprint_of` in `_failure_groups.lua`).
"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Collection, Iterator
from pathlib import Path
from types import TracebackType

LONGEST = 300
"""Characters of a message that are compared."""

_WORD = re.compile(r"[\w-]+")
_HEX = re.compile(r"[0-9a-fA-F-]{8,}")
_ROW = re.compile(r"#(?:[.:,/+@]#)+")
_LONG_QUOTE = re.compile(r"""(["'])[^"']{40,}\1""")
_NAME = type.__dict__["__name__"]
_MRO = type.__dict__["__mro__"]
_INSTRUMENTATION = str(Path(__file__).parents[1] / "observability" / "instrumentation.py")
_LIBRARIES = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib")})


def pattern(message: str) -> str:
    """Returns a message without the parts that vary between failures: words with a digit become `#`."""
    text = " ".join(message[:LONGEST].split())
    text = _LONG_QUOTE.sub(r"\1…\1", text)
    return _ROW.sub("#", _WORD.sub(_without_number, text))


def place(traceback: TracebackType | None, runners: Collection[str] = ()) -> str:
    """Returns where an error arose, as `module.function`: the innermost frame outside libraries, if there is one.

    Has no line number, so that a fingerprint survives edits elsewhere in the file. Frames of the files `runners` are
    ignored, and so are frames of the tracing instrumentation.
    """
    frames = [
        each for each in _frames(traceback) if each.tb_frame.f_code.co_filename not in (*runners, _INSTRUMENTATION)
    ]
    own = [each for each in frames if not each.tb_frame.f_code.co_filename.startswith((*_LIBRARIES, "<"))]
    found = (own or frames)[-1:]
    return "".join(f"{each.tb_frame.f_globals.get('__name__', '?')}.{_function(each)}" for each in found)[:200]


def class_name(value: object) -> str:
    """Returns the name of its class, even if a metaclass overrides `__name__`."""
    return str(_NAME.__get__(type(value)))


def lineage(error: BaseException) -> tuple[type, ...]:
    """Returns the class of an error and those it inherits from, even if a metaclass hides them.

    Compare them by identity: a metaclass may define `__eq__` or `__hash__`.
    """
    found: tuple[type, ...] = _MRO.__get__(type(error))
    return found


def _function(frame: TracebackType) -> str:
    return frame.tb_frame.f_code.co_qualname


def _frames(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _without_number(match: re.Match[str]) -> str:
    word = match[0]
    return "#" if any(mark.isdigit() for mark in word) or _HEX.fullmatch(word) else word
