"""The check of the scripts finds what it is there for."""

from __future__ import annotations

from shutil import which

import pytest

from firmq.shared.redis.linker import scripts
from tools import lint_lua

pytestmark = pytest.mark.skipif(which("luacheck") is None, reason="luacheck is not installed")


def test_a_finding_names_the_script_and_shows_the_line() -> None:
    [found] = lint_lua.findings({"one": "local a = ARGV[1]\nreturn b or a", "two": "return redis.call('TIME')"})
    assert found.startswith("one, line 2: ")
    assert found.endswith("\n  return b or a")


def test_every_script_is_checked() -> None:
    assert {each.split("_with_")[0] for each in lint_lua.forms()} > set(scripts())
