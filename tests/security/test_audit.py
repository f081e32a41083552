"""What an audit of the dependencies means, also when nobody answers."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.security.audit import LOCK, first_of, judge
from tests.support.harness import ROOT

GOOD = {"name": "flask", "version": "3.1.2", "vulns": []}
HOLE = {"name": "flask", "version": "0.1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3.1.3"]}]}
UNKNOWN = {"name": "flask", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("answer", "soft", "hard", "words"),
    [
        (None, 0, 1, "skipped: no advisory service is reachable"),
        ({"dependencies": [UNKNOWN]}, 0, 1, "skipped: no advisory service is reachable"),
        ({"dependencies": [GOOD]}, 0, 0, "1 packages, no known hole"),
        ({"dependencies": [GOOD, HOLE]}, 1, 1, "flask 0.1: PYSEC-1, mended in 3.1.3"),
        ({"dependencies": [GOOD, UNKNOWN]}, 0, 1, ""),
    ],
)
def test_an_audit_that_saw_nothing_is_no_good_news(
    answer: dict[str, Any] | None, soft: int, hard: int, words: str
) -> None:
    assert (judge(answer, hard=False).status, judge(answer, hard=True).status) == (soft, hard)
    assert words in judge(answer, hard=False).text


def test_the_first_package_of_the_lock_is_asked_about_by_itself() -> None:
    first = first_of(LOCK.read_text())
    assert len(re.findall("==", first)) == 1
    assert "--hash=sha256:" in first


def test_make_check_audits_and_scans() -> None:
    text = (ROOT / "Makefile").read_text()
    rules = dict(re.findall(r"^(\w+):[^\n]*\n((?:\t[^\n]*\n)+)", text, re.MULTILINE))
    assert "tests.security.scan" in rules["check"]
    assert re.search(r"tests\.security\.audit$", rules["check"], re.MULTILINE)
    assert "tests.security.audit --hard" in rules["scan"]
