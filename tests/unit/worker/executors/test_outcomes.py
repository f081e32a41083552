"""How the end of an attempt is put into words, without a worker around it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from firmq.shared.config.settings import Settings
from firmq.shared.domain.clock import to_us
from firmq.worker.executors.ipc import Assignment
from firmq.worker.executors.outcomes import Outcomes, ResultNotSerializable
from firmq.worker.handlers.registry import Registry, task
from firmq.worker.handlers.signals import RetryLater


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


class State(Enum):
    OPEN = "open"


class Level(IntEnum):
    LOW = 1


class Kind(StrEnum):
    A = "a"


@dataclass
class Sheet:
    rows: dict[Any, int]


class Row(BaseModel):
    rows: dict[Any, int]


DAY = date(2026, 1, 31)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        *((7, "7"), (True, "true"), (1.5, "1.5"), (DAY, "2026-01-31"), (UUID(int=7), str(UUID(int=7)))),
        *((State.OPEN, "open"), (Level.LOW, "1"), (Kind.A, "a"), (Decimal("1.50"), "1.50"), ((1, 2), "1,2")),
        *((datetime(2026, 1, 31, tzinfo=UTC), "2026-01-31T00:00:00Z"), (timedelta(1), "P1D"), (b"x", "x")),
    ],
)
def test_keys_of_results_are_written_as_pydantic_writes_them(key: Any, text: str) -> None:
    outcomes, rows = Outcomes(Settings(), []), {key: 4}
    for value, expected in (
        (rows, {text: 4}),
        ([rows, {"a": rows}], [{text: 4}, {"a": {text: 4}}]),
        (Sheet(rows), {"rows": {text: 4}}),
        (Row(rows=rows), {"rows": {text: 4}}),
        (Counter([key]), {text: 1}),
    ):
        assert json.loads(outcomes.json(value, "the handler", "the result")) == expected


@pytest.mark.parametrize(
    "rows",
    [{1: 1, "1": 2}, {True: 1, "true": 2}, {None: 1, "null": 2}, {DAY: 1, "2026-01-31": 2}, {State.OPEN: 1, "open": 2}],
)
def test_two_keys_that_become_one_are_refused(rows: dict[Any, int]) -> None:
    for value in (rows, [{"rows": rows}], Sheet(rows) if None not in rows else rows):
        with pytest.raises(ResultNotSerializable, match="two keys of a mapping are '"):
            Outcomes(Settings(), []).json(value, "the handler", "the result")
