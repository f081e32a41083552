"""Commits follow CONTRIBUTING.md: their subjects, and how much they change."""

from __future__ import annotations

import subprocess

import pytest

from tools import commits
from tools.commits import mistakes


@pytest.mark.parametrize("subject", ["Fix duplicate start after lease loss", "Embed the font", "Read " + "x" * 67])
def test_a_plain_imperative_subject_passes(subject: str) -> None:
    assert list(mistakes(subject)) == []


@pytest.mark.parametrize("subject", ["fixup! Fix it", "Fixed it", "Fix it.", "Read " + "x" * 68, ""])
def test_a_subject_that_breaks_a_rule_is_listed(subject: str) -> None:
    assert list(mistakes(subject))


def test_a_commit_counts_by_what_it_adds_or_removes_without_generated_files(monkeypatch: pytest.MonkeyPatch) -> None:
    log = (
        "commit\n\n10\t3\tshared/a.py\n-\t-\tdocs/a.png\n900\t0\tdocs/reference/api.md\ncommit\n\n4\t12\tworker/b.py\n"
    )
    said = {"rev-parse": "", "log": log}
    monkeypatch.setattr(
        commits, "_git", lambda command, *_: subprocess.CompletedProcess([], returncode=0, stdout=said[command])
    )
    assert commits.largest() == 12


def test_git_understands_how_commits_are_asked_for() -> None:
    if commits._git("rev-parse", "--verify", "--quiet", f"{commits.COUNTED_SINCE}^{{commit}}").returncode:
        pytest.skip("the history of the repository is not here")
    assert commits.largest() > 0
