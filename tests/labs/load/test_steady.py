"""A light load for three minutes: nothing grows, and everybody has counted the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.labs.load.steady import Plan, run
from tests.labs.load.verdict import figures_of, shown

PLAN = Plan(
    tasks_per_second=80,
    warm_up=65,
    seconds=110,
    between_samples=3,
    between_visits=5,
    environment={"WORKER_EXECUTORS": "1", "GATEWAY_PROCESSES": "1"},
)
"""A tenth of a processor, as it runs beside other tests; which is also why it does not look at latencies."""


@pytest.mark.begins_first
@pytest.mark.timeout(900)
def test_nothing_grows_under_a_steady_load(tmp_path: Path) -> None:
    figures = figures_of(run(PLAN, tmp_path), hold_latencies=False)
    print(shown(figures))
    assert not figures.complaints, shown(figures)
    assert figures.counts["clients"]["accepted"] > 1000
    assert figures.stored
