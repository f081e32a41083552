"""What the laboratory says of its outcomes, and that its list is one of patterns with reasons."""

from __future__ import annotations

from tests.labs.rq_suite.__main__ import NOT_APPLICABLE, failed, summary


def outcome(kind: str, reason: str = "", *, worked: bool = False) -> dict[str, object]:
    return {"id": "tests/test_a.py::T::test_b", "outcome": kind, "worked": worked, "reason": reason}


def test_passed_not_applicable_and_failed_are_told_apart() -> None:
    outcomes = [
        outcome("passed", worked=True),
        outcome("passed"),
        outcome("skipped", "Skipped: not applicable: it looks into RQ's process"),
        outcome("skipped", "Skipped: Slow tests disabled"),
        outcome("failed"),
    ]
    assert summary(outcomes) == ("2 passed, 1 of them started a worker; 1 not applicable, 1 skipped by RQ, 1 failed")
    assert failed(outcomes) == [outcomes[-1]]


def test_each_line_of_the_list_has_a_pattern_and_a_reason() -> None:
    for line in NOT_APPLICABLE.read_text().splitlines():
        pattern, reason = line.split(None, 1)
        assert pattern.startswith("test_")
        assert "::" in pattern
        assert len(reason) > 20
