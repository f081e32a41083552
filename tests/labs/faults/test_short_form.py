"""The fault laboratory for some seconds: everything goes wrong, and every promise is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.labs.faults.__main__ import experiment
from tests.labs.faults.figures import shown
from tests.labs.faults.laboratory import names

SEED = 5
FAULTS = [name for name in names() if name not in ("flood of submissions", "1,000 leases end together")]
"""Those two make thousands of tasks: they are for the long form."""


@pytest.mark.alone
@pytest.mark.timeout(280)
def test_every_accepted_task_ends_once_under_faults(tmp_path: Path) -> None:
    figures = experiment(tmp_path, SEED, 20, FAULTS, pause=0.2)
    print(shown(figures))
    assert figures.clean, shown(figures)
    assert figures.fault_count >= 3
    assert figures.tasks >= 50
