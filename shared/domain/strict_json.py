"""JSON as RFC 8259 and I-JSON (RFC 7493) mean it, and nothing else.

Python's parser is generous where a queue must not be: it takes NaN and numbers that overflow to infinity, keeps the
last of several equal keys, lets through halves of surrogate pairs that no UTF-8 can hold, and dies of deep nesting.
Whatever `parse` returns can be stored and given back unchanged.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from shared.errors import InvalidJSON

MAX_DIGITS = 1000
"""Of an integer. Python itself refuses more than 4300, because reading digits takes quadratic time."""

# A string without an end is one match too: trying it again from each of its escaped quotes would take quadratic time.
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_HALF = re.compile("[\ud800-\udfff]")
_MAY_HAVE_HALVES = re.compile(rb"\\u[dD]|\xed")
_BRACKETS = {code: {"[": "[", "{": "[", "]": "]", "}": "]"}.get(chr(code)) for code in range(128)}
_SHOWN = 40


def parse(body: bytes, *, max_depth: int) -> Any:
    """The value of a JSON text in UTF-8. Raises InvalidJSON, whose message says what to change."""
    text = _text(body)
    _check_depth(text, max_depth)
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise InvalidJSON(f"this is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from error
    # An escape is the only way in for a half of a pair: real ones were refused with the UTF-8.
    if "\\u" in text:
        check_surrogates(value)
    return value


def dump(value: Any) -> str:
    """The shortest JSON text of a value, not escaped beyond need. Raises ValueError for NaN and infinities."""
    return _ENCODER.encode(value)


def dump_anything(value: Any) -> bytes:
    """The JSON text of what a handler returned, which may be what JSON has no word for: NaN becomes null."""
    try:
        return _ENCODER.encode(value).encode()
    except ValueError:
        return json.dumps(_without_nan(value), separators=(",", ":")).encode()


def load_anything(stored: bytes) -> Any:
    """A value that is kept as JSON, which a handler may have written: halves of surrogate pairs become U+FFFD.

    Raises ValueError for what is no JSON.
    """
    value = json.loads(stored)
    if _MAY_HAVE_HALVES.search(stored):
        value = json.loads(_HALF.sub("\ufffd", json.dumps(value, ensure_ascii=False)))
    return value


def check_surrogates(value: Any) -> None:
    """Raises InvalidJSON for a value with text that no UTF-8 can hold."""
    try:
        _ENCODER.encode(value).encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise InvalidJSON(
            f"a string contains {half}, one half of a surrogate pair: it stands for no character and cannot be stored "
            "as UTF-8; send both halves, or leave it out"
        ) from error


def _without_nan(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: _without_nan(member) for key, member in value.items()}
        case list() | tuple():
            return [_without_nan(member) for member in value]
        case _:
            return value


def _text(body: bytes) -> str:
    if not body.strip():
        raise InvalidJSON("the body is empty: send a JSON object")
    if body.startswith(b"\xef\xbb\xbf"):
        raise InvalidJSON("the body begins with a byte order mark: send UTF-8 without one")
    if body.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in body[:2]:
        raise InvalidJSON("the body looks like UTF-16 or UTF-32: send UTF-8")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise InvalidJSON(f"the body is not UTF-8: byte {error.start} cannot be read ({error.reason})") from error


def _check_depth(text: str, most: int) -> None:
    """Measures the nesting before the parser recurses into it.

    What is left of the text without its strings is a row of brackets; each pass takes the innermost pairs out. That is
    as many passes as the text is deep, all in C, where counting bracket by bracket took longer than parsing.
    """
    if text.count("[") + text.count("{") <= most:
        return
    left = _STRING.sub("", text).translate(_BRACKETS)
    for _ in range(most):
        without = left.replace("[]", "")
        if len(without) == len(left):
            break
        left = without
    # Brackets without a partner are left for the parser to complain of, unless it would have to dive for them.
    if "[]" in left or left.count("[") > most:
        raise InvalidJSON(f"the body is nested more than {most} deep: flatten it")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise InvalidJSON(f"the key {_shown(_first_double(pairs))} appears twice in one object: keep one of them")
    return members


def _first_double(pairs: list[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    return next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]  # add() is None


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise InvalidJSON(f"an integer has {len(text)} digits, {MAX_DIGITS} is the most: send it as a string")
    if text == "-0":
        raise InvalidJSON("-0 is no integer: write 0, or -0.0 if the sign matters")
    return int(text)


def _fraction(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise InvalidJSON(f"the number {_shown(text)} is too large for a double: send it as a string")
    return value


def _constant(name: str) -> None:
    raise InvalidJSON(f"{name} is not JSON: send null or a string")


def _shown(text: str) -> str:
    """A piece of the input, safe and short enough for a message."""
    return json.dumps(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_fraction, parse_constant=_constant
)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
