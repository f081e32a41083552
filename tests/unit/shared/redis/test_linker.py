"""A script carries what it needs of what scripts share, and nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path
from shutil import which

import pytest

from shared.redis.linker import lean, source, sources

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


SCRIPTS = sorted(name for name in sources() if not name.startswith("_"))


@pytest.mark.skipif(which("luacheck") is None, reason="luacheck is not installed")
def test_no_script_defines_a_name_twice_or_uses_one_that_is_nowhere(tmp_path: Path) -> None:
    """Linked with what it needs: what another part declared must not be declared again, which would hide it."""
    for name in SCRIPTS:
        (tmp_path / f"{name}.lua").write_text(source(name))
    # Parts share constants that not every script uses (2xx), and inner names may be those of shared functions (431).
    options = ["--std", "lua51", "--globals", "redis", "cjson", "KEYS", "ARGV", "put_away", "--ignore", "2..", "431"]
    command = ["luacheck", "--no-max-line-length", "--no-color", "--quiet", *options, "--", str(tmp_path)]
    linted = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert linted.returncode == 0, linted.stdout
