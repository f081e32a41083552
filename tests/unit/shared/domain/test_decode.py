"""What comes out of Redis as a number or a moment is one that can be calculated with."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from firmq.shared.domain.decode import UNREADABLE, fits, moment, whole, whole_or_none

NO_NUMBERS = (b"", b"x", b"\xff", b"1.5", b"9" * 19, b"9" * 400, b"9" * 5000, b"-" + b"9" * 5000)


@pytest.mark.parametrize("stored", NO_NUMBERS)
def test_what_redis_cannot_count_is_no_number(stored: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        whole(stored)
    assert whole_or_none(stored) is None


def test_numbers_as_redis_counts_them_are_read() -> None:
    for number in (0, -7, 2**63 - 1, -(2**63)):
        assert whole(str(number)) == whole(str(number).encode()) == whole_or_none(str(number)) == number
    assert whole_or_none(None) is None
    assert whole_or_none(ValueError("of a pipeline")) is None


def test_a_moment_says_its_zone() -> None:
    assert moment("2026-01-01T01:00:00+01:00") == datetime(2026, 1, 1, tzinfo=UTC)
    for said in ("2026-01-01T00:00:00", "2026-01-01", "", "x", "0001-01-01T00:00:00+05:00"):
        with pytest.raises(UNREADABLE):
            moment(said)


@pytest.mark.parametrize("value", [10**400, -(10**400), 1e308, float("inf"), float("nan"), True, "1", None])
@pytest.mark.parametrize("hint", [int, float])
def test_values_that_cannot_be_calculated_with_fit_no_field(value: Any, hint: type) -> None:
    assert not fits(value, hint)
    assert fits(1, hint)
    assert fits(1.5, hint) == (hint is float)


def test_a_sequence_holds_what_it_is_declared_to() -> None:
    assert fits([1, 2.5], Sequence[float])
    assert fits([], Sequence[float])
    for value in (["1"], "12", 1, None, {"1": 1}, [[1]]):
        assert not fits(value, Sequence[float])
