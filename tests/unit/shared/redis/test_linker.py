"""A script carries what it needs of what scripts share, and nothing else."""

from __future__ import annotations

import re

import pytest

from firmq.shared.redis.keys import with_prefix
from firmq.shared.redis.linker import LATER, lean, scripts, source, with_quarantine
from tests.support.keys import keys

SHARED = """
-- uses needless() in words only
local now = clock(ARGV[1])
local LIMIT = 3
local function clock(given) return given end
local function needless()
  return 1
end
local function half(x)
  return x / LIMIT
end
local function quarter(x)
  return half(half(x))
end
local TABLE = {
  two = 2,
}
local again
function again() return 0 end
refuse(now)
"""


def test_functions_that_are_needed_come_along_with_what_they_need() -> None:
    text = lean(SHARED, "return quarter(8)")
    assert "local function quarter(x)" in text
    assert "local function half(x)" in text


def test_unused_functions_are_left_out() -> None:
    assert "needless" not in lean(SHARED, "return quarter(8)")


def test_definitions_that_are_needed_stay_in_their_order_and_statements_always() -> None:
    text = lean(SHARED, "return again(TABLE)")
    assert text.splitlines() == [
        "local now = clock(ARGV[1])",
        "local function clock(given) return given end",
        "local TABLE = {",
        "  two = 2,",
        "}",
        "local again",
        "function again() return 0 end",
        "refuse(now)",
        "return again(TABLE)",
    ]


@pytest.mark.parametrize("own", ["-- half of it\nreturn 1", "return 'half'", "return x.half"])
def test_a_function_named_in_a_comment_a_text_or_a_field_is_not_needed_for_it(own: str) -> None:
    assert "local function half" not in lean(SHARED, own)


@pytest.mark.parametrize("name", scripts())
def test_a_script_names_the_keys_of_the_map(name: str) -> None:
    assert "keys." not in source(name, keys)


def test_the_key_of_something_is_its_text_and_the_name() -> None:
    assert "('rq:job:' .. id)" in source("cancel", keys)
    assert "redis.call('ZADD', 'firmq:tasks', " in source("submit_one", keys)


def test_a_script_of_a_system_with_a_prefix_names_no_key_without_it() -> None:
    shop = with_prefix("{shop}:eu")
    for name in scripts():
        for text in (source(name, shop), with_quarantine(name, shop)):
            assert not re.search(r"['\"](rq|firmq):", text), name
    assert "('{shop}:eu:rq:job:' .. id)" in source("cancel", shop)


def test_one_prefix_has_one_text_of_a_script() -> None:
    assert source("cancel", with_prefix("shop")) is source("cancel", with_prefix("shop"))
    assert source("cancel", with_prefix("shop")) != source("cancel", with_prefix("store"))


def test_definitions_that_only_later_text_needs_stand_there() -> None:
    shared = "local function a() return 1 end\nlocal function b() return a() end\nlocal function c() return 2 end\n"
    whole = lean(shared, f"if ARGV[1] then return c() end\n{LATER}return b() + c()\n")
    first, later = whole.split("if ARGV[1] then return c() end\n")
    assert first == "local function c() return 2 end\n"
    assert later == "local function a() return 1 end\nlocal function b() return a() end\nreturn b() + c()\n"


def test_a_step_of_another_script_has_no_later_definitions() -> None:
    text = source("submit_one_once", keys)
    assert text.index("function set_state(") < text.index("function submit_one(")
    assert source("submit_one", keys).index("function set_state(") > source("submit_one", keys).index(
        "return 'pending'"
    )
