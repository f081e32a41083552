"""How the end of an attempt is put into words, without a worker around it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from taskqueue.shared.config.settings import Settings
from taskqueue.shared.domain.clock import to_us
from taskqueue.worker.executors.ipc import Assignment
from taskqueue.worker.executors.outcomes import Outcomes
from taskqueue.worker.handlers.registry import Registry, task
from taskqueue.worker.handlers.signals import RetryLater


def test_a_handler_cannot_choose_a_longer_pause_than_any_task_may_wait() -> None:
    assignment = Assignment(1, b"id", b"type", b"", 1, 0, b"", b"", 0, 60.0)
    outcomes = Outcomes(Settings(max_delay=2 * 86400), [__file__])
    for wished, pause in ((60, timedelta(seconds=60)), (1e12, timedelta(days=2))):
        judgement = outcomes.judge(assignment, None, RetryLater(wished))
        assert (judgement.state, judgement.delay_us) == ("retrying", to_us(pause))


@pytest.mark.parametrize(
    ("retry", "failures", "own", "expected"),
    [
        ([15, 60], 1, b"", ("retrying", 60)),
        ([15, 60], 2, b"", ("failed", 0)),
        ([15, 60], 0, b'{"pauses": [2]}', ("retrying", 2)),
        (lambda error, failures: 100 * failures, 1, b"", ("retrying", 200)),
        (lambda error, failures: None, 0, b"", ("failed", 0)),
        (lambda error, failures: "soon", 0, b"", ("retrying", 5)),
        (lambda error, failures: 1 / 0, 1, b"", ("retrying", 10)),
        (lambda error, failures: 1, 3, b"", ("failed", 0)),
        ({OSError: [7], ValueError: None}, 0, b"", ("retrying", 7)),
        ({ValueError: [7], OSError: None}, 0, b'{"max_retries": 9}', ("failed", 0)),
        ({ValueError: None}, 0, b"", ("retrying", 5)),
    ],
)
def test_a_handler_says_how_it_is_retried(retry: Any, failures: int, own: bytes, expected: tuple[str, int]) -> None:
    registry = Registry()
    task("sync", retry=retry, registry=registry)(_sync)
    assignment = Assignment(1, b"id", b"sync", b"", 1, failures, own, b"", 0, 60.0)
    error = ConnectionError("away")
    judgement = Outcomes(Settings(), [__file__]).judge(assignment, registry.handlers["sync"], error)
    assert (judgement.state, judgement.delay_us) == (expected[0], expected[1] * 1_000_000)


def _sync(data: Mapping[str, Any]) -> None:
    pass
