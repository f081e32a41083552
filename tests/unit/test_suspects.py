"""Which tasks that may have killed a worker begin beside which others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from worker.engine.claimed_task import Held
from worker.engine.crash_isolation import SETTLED, Suspects
from worker.executors.process import ExecutorProcess

MAX_CRASHES = 3


def held(crashes: int, losses: int = 1) -> Held:
    parts: dict[str, Any] = dict.fromkeys(Held.__slots__[:15])
    return Held(**{**parts, "crashes": crashes, "losses": losses})


HONEST, SUSPECT, LAST = held(0, 0), held(1), held(MAX_CRASHES - 1)


def beside(*running: Held, for_seconds: float = 0.1) -> Suspects:
    executors = [SimpleNamespace(began_at=100 - for_seconds, assigned={1: each}) for each in running]
    return Suspects(cast("list[ExecutorProcess]", executors), MAX_CRASHES, lambda: 100.0)


def test_suspects_begin_beside_each_other_and_beside_those_that_are_none() -> None:
    assert beside(SUSPECT, HONEST).may_begin(SUSPECT, one_waits=False)


def test_one_whose_next_crash_would_be_its_last_begins_when_no_other_suspect_runs() -> None:
    assert not beside(SUSPECT, HONEST).may_begin(LAST, one_waits=True)
    assert beside(HONEST).may_begin(LAST, one_waits=True)


def test_while_it_waits_or_has_just_begun_no_other_suspect_begins() -> None:
    assert Suspects([], MAX_CRASHES).one_waits([HONEST, SUSPECT, LAST])
    assert not Suspects([], MAX_CRASHES).one_waits([HONEST, SUSPECT])
    assert not beside().may_begin(SUSPECT, one_waits=True)
    assert not beside(LAST).may_begin(SUSPECT, one_waits=False)


def test_nobody_waits_for_hours_because_a_suspect_runs_that_long() -> None:
    assert beside(SUSPECT, for_seconds=SETTLED + 1).may_begin(LAST, one_waits=True)
    assert beside(LAST, for_seconds=SETTLED + 1).may_begin(SUSPECT, one_waits=False)
