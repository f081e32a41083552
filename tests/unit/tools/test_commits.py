"""Subjects of commits follow CONTRIBUTING.md."""

from __future__ import annotations

import pytest

from tools.commits import mistakes


@pytest.mark.parametrize("subject", ["Fix duplicate start after lease loss", "Embed the font", "Read " + "x" * 67])
def test_a_plain_imperative_subject_passes(subject: str) -> None:
    assert list(mistakes(subject)) == []


@pytest.mark.parametrize("subject", ["fixup! Fix it", "Fixed it", "Fix it.", "Read " + "x" * 68, ""])
def test_a_subject_that_breaks_a_rule_is_listed(subject: str) -> None:
    assert list(mistakes(subject))
