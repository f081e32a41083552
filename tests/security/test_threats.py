"""The page about security names a test in every line, and every test that it names exists."""

from __future__ import annotations

import re

from tests.support.harness import ROOT

PAGE = ROOT / "docs" / "security.md"
TABLES = re.findall(
    r"^\| \w+ \| protection \| shown by \|\n\|---\|---\|---\|\n((?:\|.*\n)+)", PAGE.read_text(), re.MULTILINE
)


def test_every_threat_names_its_test_and_every_test_exists() -> None:
    defined = {
        name for path in ROOT.glob("tests/**/*.py") for name in re.findall(r"def (test_\w+)\(", path.read_text())
    }
    lines = [line for table in TABLES for line in table.splitlines()]
    assert len(lines) > 25
    for line in lines:
        named = set(re.findall(r"`(test_\w+)`", line))
        assert named, line
        assert named <= defined, named - defined
