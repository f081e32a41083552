"""Which formats of the data a version works with."""

from __future__ import annotations

import re

import pytest

from firmq.shared.redis import schema_version
from firmq.shared.redis.linker import sources
from firmq.shared.redis.schema_version import judge
from tests.support.keys import keys


@pytest.mark.parametrize(
    ("found", "refusal", "raise_it"),
    [
        ("4", "", False),
        ("3", "", True),
        ("2", "", True),
        ("1", "reads 2 or newer: let the version that wrote it complete its tasks", False),
        ("1 draining", "reads 2 or newer: let the version that wrote it complete its tasks", False),
        ("5", "reads up to 4: run the version that wrote it", False),
        ("soon", "the unknown format", False),
        (b"\xff", "the unknown format", False),
    ],
)
def test_a_newer_format_and_one_too_old_are_refused_with_what_to_do(
    found: bytes | str, refusal: str, raise_it: bool
) -> None:
    verdict = judge(found, keys.FORMAT, ours=4, oldest=2)
    assert refusal in verdict.refusal
    assert bool(verdict.refusal) == bool(refusal)
    assert verdict.raise_it is raise_it


def test_lua_and_python_write_the_same_format() -> None:
    text = sources()["_prelude"]
    assert re.findall(r"local FORMAT = '(\d+)'", text) == [str(schema_version.FORMAT)]
