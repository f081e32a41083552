"""The page of threats names a test in every line, and every test that it names exists."""

from __future__ import annotations

import re

from tests.support.harness import ROOT

PAGE = ROOT / "shared" / "THREATS.md"
LINES = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "| he tries |" not in line]


def test_every_threat_names_its_test_and_every_test_exists() -> None:
    defined = {
        name for path in ROOT.glob("tests/**/*.py") for name in re.findall(r"def (test_\w+)\(", path.read_text())
    }
    assert len(LINES) > 25
    for line in LINES:
        named = set(re.findall(r"`(test_\w+)`", line))
        assert named, line
        assert named <= defined, named - defined


def test_it_is_one_page() -> None:
    assert len(PAGE.read_text().splitlines()) < 100
