"""JSON as in RFC 8259 and I-JSON (RFC 7493), and nothing else.

Python's parser is too lenient for a queue: it accepts NaN and numbers that overflow to infinity, keeps the last of
several equal keys, accepts lone surrogates, which UTF-8 cannot hold, and fails on deep nesting. A value that `parse`
returns can be stored and returned unchanged.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from firmq.shared.errors import InvalidJSON

MAX_DIGITS = 1000
"""The limit of an integer. Python itself refuses more than 4300, because parsing digits takes quadratic time."""

# An unterminated string is one match too: retrying from each of its escaped quotes would take quadratic time.
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_HALF = re.compile("[\ud800-\udfff]")
_MAY_HAVE_HALVES = re.compile(rb"\\u[dD]|\xed")
_BRACKETS = {code: {"[": "[", "{": "[", "]": "]", "}": "]"}.get(chr(code)) for code in range(128)}
_SHOWN = 40
_DIGITS = re.compile(f"[0-9]{{{MAX_DIGITS}}}")


def parse(body: bytes, *, max_depth: int) -> Any:
    """Returns the value of a JSON text in UTF-8. Raises InvalidJSON with the required change."""
    text = _text(body)
    _check_depth(text, max_depth)
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise InvalidJSON(f"this is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from error
    # Only an escape can produce a lone surrogate here: UTF-8 with one was refused before.
    if "\\u" in text:
        check_surrogates(value)
    return value


def dump(value: Any) -> str:
    """Returns the shortest JSON text of a value, escaped only as needed. Raises ValueError for NaN and infinities."""
    return _ENCODER.encode(value)


def dump_checked(value: Any, *, max_depth: int) -> str:
    """Returns the JSON text of a value, which `parse` accepts within an object.

    Raises InvalidJSON, and TypeError or ValueError for a value that JSON lacks.
    """
    text = dump(value)
    if not text.isascii():
        check_surrogates(value)
    if text.count("[") + text.count("{") >= max_depth:
        _check_depth(f"[{text}]", max_depth)
    if len(text) > MAX_DIGITS and _DIGITS.search(text):
        parse(text.encode(), max_depth=max_depth)
    return text


def dump_anything(value: Any) -> bytes:
    """Returns the JSON text of a handler's result; values that JSON lacks, such as NaN, become null."""
    try:
        return _ENCODER.encode(value).encode()
    except ValueError:
        return json.dumps(_without_nan(value), separators=(",", ":")).encode()


def load_anything(stored: bytes) -> Any:
    """Returns a value stored as JSON, possibly by a handler: lone surrogates become U+FFFD.

    Raises ValueError for text that is not JSON.
    """
    value = json.loads(stored)
    if _MAY_HAVE_HALVES.search(stored):
        value = json.loads(_HALF.sub("\ufffd", json.dumps(value, ensure_ascii=False)))
    return value


def check_surrogates(value: Any) -> None:
    """Raises InvalidJSON for a value with text that UTF-8 cannot hold."""
    try:
        _ENCODER.encode(value).encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise InvalidJSON(
            f"a string contains {half}, one half of a surrogate pair, which cannot be stored as UTF-8: "
            "send both halves, or leave it out"
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
        raise InvalidJSON("the body starts with a byte order mark: send UTF-8 without one")
    if body.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in body[:2]:
        raise InvalidJSON("the body looks like UTF-16 or UTF-32: send UTF-8")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise InvalidJSON(f"the body is not UTF-8: byte {error.start} is invalid ({error.reason})") from error


def _check_depth(text: str, most: int) -> None:
    """Raises InvalidJSON for too deep nesting, before the parser recurses into it.

    The text without its strings is a row of brackets; each pass removes the innermost pairs. That is as many passes as
    the text is deep, all in C; counting bracket by bracket took longer than parsing.
    """
    if text.count("[") + text.count("{") <= most:
        return
    left = _STRING.sub("", text).translate(_BRACKETS)
    for _ in range(most):
        without = left.replace("[]", "")
        if len(without) == len(left):
            break
        left = without
    # Unpaired brackets are left to the parser to refuse, unless it would have to recurse too deep.
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
        raise InvalidJSON(f"an integer has {len(text)} digits, at most {MAX_DIGITS} are allowed: send it as a string")
    if text == "-0":
        raise InvalidJSON("-0 is not an integer: send 0, or -0.0 if the sign matters")
    return int(text)


def _fraction(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise InvalidJSON(f"the number {_shown(text)} is too large for a double: send it as a string")
    return value


def _constant(name: str) -> None:
    raise InvalidJSON(f"{name} is not JSON: send null or a string")


def _shown(text: str) -> str:
    """Returns a piece of the input, sanitized and cut for a message."""
    return json.dumps(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_fraction, parse_constant=_constant
)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
