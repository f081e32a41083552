"""Quiet hours are a part of each day by the clocks of a zone."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from firmq.shared.features.alerts.quiet_hours import QuietHours


@pytest.mark.parametrize(
    ("hours", "at", "quiet"),
    [
        ("22:00-07:00", "2026-01-10T23:30", True),
        ("22:00-07:00", "2026-01-10T06:59", True),
        ("22:00-07:00", "2026-01-10T07:00", False),
        ("12:00-13:00", "2026-01-10T12:00", True),
        ("12:00-13:00", "2026-01-10T13:00", False),
        ("22:00-07:00 Europe/Berlin", "2026-01-10T21:00", True),
        ("22:00-07:00 Europe/Berlin", "2026-07-10T20:00", True),
        ("22:00-07:00 Europe/Berlin", "2026-01-10T20:59", False),
        ("00:00-00:00", "2026-01-10T12:00", False),
    ],
)
def test_a_moment_is_quiet_by_the_clock_of_the_zone(hours: str, at: str, quiet: bool) -> None:
    read = QuietHours.read(hours)
    assert read is not None
    assert read.cover(datetime.fromisoformat(at).replace(tzinfo=UTC)) is quiet


def test_empty_text_means_none() -> None:
    assert QuietHours.read(" ") is None


@pytest.mark.parametrize(
    "text", ["at night", "22-07", "25:00-07:00", "22:00-07:00 Europe/Atlantis", "22:00-07:00 ../x"]
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must|unknown"):
        QuietHours.read(text)
