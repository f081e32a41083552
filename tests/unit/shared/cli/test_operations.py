"""Times that people give on the command line."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from taskqueue.shared.cli.operations import pause_end

NOON = datetime(2030, 1, 31, 12, tzinfo=timezone(timedelta(hours=1)))


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("14:00", "2030-01-31T14:00:00+01:00"),
        ("11:30", "2030-02-01T11:30:00+01:00"),
        ("14:00Z", "2030-01-31T14:00:00+00:00"),
        ("2030-03-01T09:00:00Z", "2030-03-01T09:00:00+00:00"),
    ],
)
def test_a_time_of_day_is_the_next_one(text: str, end: str) -> None:
    assert pause_end(text, NOON) == datetime.fromisoformat(end)


def test_another_text_is_refused() -> None:
    with pytest.raises(ValueError, match="soon"):
        pause_end("soon", NOON)
