"""Strict JSON: everything that is JSON comes back unchanged, everything else is refused in words that help."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firmq.shared.domain import strict_json
from firmq.shared.errors import InvalidJSON

DEPTH = 64


def parse(body: bytes) -> Any:
    return strict_json.parse(body, max_depth=DEPTH)


texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=20,
)


@given(values)
def test_whatever_is_json_comes_back_unchanged(value: Any) -> None:
    text = strict_json.dump(value)
    assert parse(text.encode()) == value
    assert strict_json.dump(parse(text.encode())) == text
    assert parse(json.dumps(value).encode()) == value


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_a_refusal(body: bytes) -> None:
    try:
        strict_json.dump(parse(body)).encode()
    except InvalidJSON:
        return


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"{", "line 1, column 2"),
        (b'{"a":1,}', "not JSON"),
        (b'{"a":1} x', "Extra data"),
        (b"{'a':1}", "not JSON"),
        (b'{"a":\n 1 2}', "line 2"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        ("{}".encode("utf-16"), "UTF-16"),
        ("{}".encode("utf-16-le"), "UTF-16"),
        ("{}".encode("utf-32"), "UTF-16"),
        (b'"\xff"', "byte 1"),
        (b'"\xed\xa0\x80"', "not UTF-8"),
        (b'"\xc0\x80"', "not UTF-8"),
        (b'"\\ud800"', "\\ud800"),
        (b'{"\\udfff":1}', "\\udfff"),
        (b'["\\ud83d", "\\ude00"]', "surrogate"),
        (b"NaN", "NaN"),
        (b"[Infinity]", "Infinity"),
        (b"-Infinity", "-Infinity"),
        (b"1e400", "1e400"),
        (b"-1e400", "too large"),
        (b"1" * 5000, "5000 digits"),
        (b"-0", "-0"),
        (b"01", "not JSON"),
        (b"+1", "not JSON"),
        (b".5", "not JSON"),
        (b"0x10", "not JSON"),
        (b'"\t"', "not JSON"),
        (b'"ab\x00"', "not JSON"),
        (b'{"a":1,"a":2}', '"a" appears twice'),
        (b'{"x":{"b":1,"c":2,"b":1}}', '"b" appears twice'),
        (b'{"a":1,"\\u0061":2}', '"a" appears twice'),
        (b"[" * 65 + b"]" * 65, "64 deep"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "64 deep"),
        (b"[" * 100_000 + b"]" * 100_000, "64 deep"),
        (b"[" * 100_000, "64 deep"),
    ],
)
def test_what_is_no_strict_json_is_refused_with_what_to_change(body: bytes, says: str) -> None:
    with pytest.raises(InvalidJSON) as caught:
        parse(body)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 64 + b"]" * 64,
        b'{"a":' * 64 + b"1" + b"}" * 64,
        b"[" + b"[],{}," * 5000 + b"[]]",
        b'["' + b"[{" * 5000 + b'"]',
        b'"\\"' + b"[" * 100 + b'"',
        b"-0.0",
        b"1" * 1000,
        b"5e-324",
        b'"\\u0000\\u001f\\u202e\\ud83d\\ude00"',
        '"e\u0301 \u00e9 \u202e \U0001f600"'.encode(),
    ],
)
def test_unusual_but_correct_json_is_taken(body: bytes) -> None:
    value = parse(body)
    assert parse(strict_json.dump(value).encode()) == value


def test_looking_for_depth_takes_linear_time() -> None:
    """Each escaped quote of a string without end must not be the start of another search for its end."""
    spent = []
    for quotes in (50_000, 500_000):
        begun = time.thread_time()
        with pytest.raises(InvalidJSON):
            parse(b"[" * 65 + b'"' + b'\\"' * quotes)
        spent.append(time.thread_time() - begun)
    assert spent[1] < 50 * max(spent[0], 0.001), "squared, it takes a hundred times as long"


def test_a_result_that_json_has_no_word_for_is_still_shown() -> None:
    value = {"a": [float("nan"), float("inf"), 1.5], "b": "\ud800"}
    assert json.loads(strict_json.dump_anything(value)) == {"a": [None, None, 1.5], "b": "\ud800"}
