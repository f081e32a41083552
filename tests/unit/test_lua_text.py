"""A script carries what it needs of what scripts share, and nothing else."""

from __future__ import annotations

from shared.lua_text import lean

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
local again
function again() return 0 end
"""


def test_functions_that_are_needed_come_along_with_what_they_need() -> None:
    text = lean(SHARED, "return quarter(8)")
    assert "local function quarter(x)" in text
    assert "local function half(x)" in text


def test_functions_that_nobody_needs_are_left_out() -> None:
    assert "needless" not in lean(SHARED, "return quarter(8)")


def test_everything_that_is_no_function_stays_in_its_order() -> None:
    text = lean(SHARED, "return 1")
    assert text.splitlines() == [
        "local now = clock(ARGV[1])",
        "local LIMIT = 3",
        "local function clock(given) return given end",
        "local again",
        "function again() return 0 end",
        "return 1",
    ]


def test_a_function_named_in_a_comment_is_not_needed_for_it() -> None:
    assert "local function half" not in lean(SHARED, "-- half of it\nreturn 1")
