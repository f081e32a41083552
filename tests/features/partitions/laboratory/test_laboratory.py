"""Some seconds of the laboratory; `python -m tests.features.partitions.laboratory` runs ten seeds of five minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features.partitions.laboratory.laboratory import experiment


@pytest.mark.alone
def test_nothing_is_lost_or_invented_and_a_limit_holds_whatever_fails(tmp_path: Path) -> None:
    figures, complaints = experiment(tmp_path, seed=1, seconds=12, dead=4)
    assert complaints == [], figures
