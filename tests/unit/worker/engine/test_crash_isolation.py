"""Which tasks that may have killed a worker begin beside which others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from firmq.worker.engine.claimed_task import SETTLED, ClaimedTask
from firmq.worker.engine.crash_isolation import CrashIsolation
from firmq.worker.executors.process import ExecutorProcess

MAX_CRASHES = 3


def claimed(crashes: int, losses: int = 1) -> ClaimedTask:
    parts: dict[str, Any] = dict.fromkeys(ClaimedTask.__slots__[:15])
    return ClaimedTask(**{**parts, "crashes": crashes, "losses": losses})


HONEST, SUSPECT, LAST = claimed(0, 0), claimed(1), claimed(MAX_CRASHES - 1)


def beside(*running: ClaimedTask, for_seconds: float = 0.1) -> CrashIsolation:
    executors = [SimpleNamespace(began_at=lambda _: 100 - for_seconds, assigned={1: each}) for each in running]
    return CrashIsolation(cast("list[ExecutorProcess]", executors), MAX_CRASHES, lambda: 100.0)


def test_suspects_begin_beside_each_other_and_beside_those_that_are_none() -> None:
    assert beside(SUSPECT, HONEST).may_start(SUSPECT, one_waits=False)


def test_one_whose_next_crash_would_be_its_last_begins_when_no_other_suspect_runs() -> None:
    assert not beside(SUSPECT, HONEST).may_start(LAST, one_waits=True)
    assert beside(HONEST).may_start(LAST, one_waits=True)


def test_while_it_waits_or_has_just_begun_no_other_suspect_begins() -> None:
    assert CrashIsolation([], MAX_CRASHES).one_waits([HONEST, SUSPECT, LAST])
    assert not CrashIsolation([], MAX_CRASHES).one_waits([HONEST, SUSPECT])
    assert not beside().may_start(SUSPECT, one_waits=True)
    assert not beside(LAST).may_start(SUSPECT, one_waits=False)


def test_a_long_isolated_task_blocks_no_others() -> None:
    assert beside(SUSPECT, for_seconds=SETTLED + 1).may_start(LAST, one_waits=True)
    assert beside(LAST, for_seconds=SETTLED + 1).may_start(SUSPECT, one_waits=False)
