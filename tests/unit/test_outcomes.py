"""How the end of an attempt is put into words, without a worker around it."""

from __future__ import annotations

from datetime import timedelta

from shared.clock import to_us
from shared.settings import Settings
from worker.channel import Assignment
from worker.handlers.signals import RetryLater
from worker.outcomes import Outcomes


def test_a_handler_cannot_choose_a_longer_pause_than_any_task_may_wait() -> None:
    assignment = Assignment(1, b"id", b"type", b"", 1, 0, b"", b"", 0, 60.0)
    outcomes = Outcomes(Settings(max_delay=2 * 86400), [__file__])
    for wished, pause in ((60, timedelta(seconds=60)), (1e12, timedelta(days=2))):
        ended = outcomes.failed(assignment, None, RetryLater(wished), {}, 0, cancelled=False)
        assert (ended.kind, ended.delay_us) == ("retrying", to_us(pause))
