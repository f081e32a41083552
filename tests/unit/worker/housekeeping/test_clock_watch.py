"""Redis' clock by the monotonic one: what a step means for what was scheduled."""

from __future__ import annotations

import pytest

from firmq.worker.housekeeping.clock_watch import ClockWatch

START = 1_800_000_000
HOUR = 3600.0


class Clocks:
    """Redis' clock and the monotonic one of a process."""

    def __init__(self) -> None:
        self.redis, self.monotonic = float(START), 1000.0
        self.watch = ClockWatch(lambda: self.monotonic)
        self.behind()

    def behind(self, seconds: float = 0.0, step: float = 0.0) -> float:
        """After so many seconds, in which Redis' clock was set by `step`."""
        self.monotonic += seconds
        self.redis += seconds + step
        return self.watch.behind(int(self.redis * 1_000_000))


def test_a_clock_that_advances_is_not_behind() -> None:
    clocks = Clocks()
    assert [clocks.behind(seconds) for seconds in (1.0, 1.0, HOUR)] == [0.0, 0.0, 0.0]


def test_a_clock_set_back_makes_late_until_that_time_has_passed(caplog: pytest.LogCaptureFixture) -> None:
    clocks = Clocks()
    assert clocks.behind(1, step=-HOUR) == pytest.approx(HOUR)
    assert "Redis' clock was set back by 3600 s" in caplog.text
    assert clocks.behind(HOUR / 2) == pytest.approx(HOUR / 2)
    assert clocks.behind(HOUR / 2) == pytest.approx(0.0)
    assert clocks.behind(1) == 0.0


def test_a_clock_that_is_put_right_again_makes_nothing_late_any_more() -> None:
    clocks = Clocks()
    clocks.behind(1, step=-HOUR)
    assert clocks.behind(10, step=HOUR - 60) == pytest.approx(50.0)


def test_a_clock_set_forward_makes_nothing_late() -> None:
    clocks = Clocks()
    assert clocks.behind(1, step=HOUR) == 0.0
    assert clocks.behind(1) == 0.0


def test_an_answer_that_took_long_is_no_step() -> None:
    clocks = Clocks()
    assert clocks.behind(1, step=-2.0) == 0.0
