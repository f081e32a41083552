"""The sentence about busy executors: what they run, and when the next is free."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from firmq.dashboard.explain.executors import busy
from firmq.shared.stores.workers import RunningTask, WorkerInfo

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def _worker(*running: tuple[str, float], slots: int | None = None, **fields: Any) -> WorkerInfo:
    return WorkerInfo(
        name="w",
        host="h",
        pid=1,
        version="1",
        queues=("normal",),
        executors=slots or len(running),
        serial_slots=slots or len(running),
        serial_active=len(running),
        started_at=NOW,
        last_heartbeat_at=NOW - timedelta(seconds=2),
        running=tuple(RunningTask(id="x", type=kind, seconds=seconds) for kind, seconds in running),
        **fields,
    )


def test_busy_executors_are_named_with_the_time_of_the_next_free_one() -> None:
    workers = [_worker(("report", 18), ("report", 9)), _worker(("report", 3), ("mail", 400), ("report", 1))]
    usual = {"report": timedelta(seconds=60), "mail": timedelta(seconds=5)}
    expected = "All executors are busy: 4 × report, 1 × mail; the next is free in about 40 s."
    assert busy(workers, usual, NOW) == expected


@pytest.mark.parametrize(
    ("usual", "end"),
    [({}, "4 × report."), ({"report": timedelta(seconds=1)}, "4 × report; all have run for longer than usual.")],
)
def test_what_cannot_be_estimated_is_not_promised(usual: dict[str, timedelta], end: str) -> None:
    said = busy([_worker(*[("report", 30)] * 4)], usual, NOW)
    assert said
    assert said.endswith(end)


def test_a_free_slot_is_no_news() -> None:
    full, free = _worker(("report", 3)), _worker(("report", 3), slots=2)
    assert busy([full, free], {}, NOW) is None
    assert busy([], {}, NOW) is None
    silent = _worker(("report", 3), slots=2, state="silent")
    assert busy([full, silent], {}, NOW)


def test_tasks_that_run_beside_others_are_left_out() -> None:
    worker = _worker(("report", 3))
    beside = RunningTask(id="y", type="call", seconds=1, concurrent=True)
    mixed = replace(worker, running=(*worker.running, beside))
    assert busy([mixed], {"call": timedelta(seconds=5)}, NOW) == "All executors are busy: 1 × report."
    assert busy([replace(worker, serial_slots=0, serial_active=0)], {}, NOW) is None
