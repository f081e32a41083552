"""Budgets of size: what is above one is named, with both figures."""

from __future__ import annotations

import pytest

from tools import size
from tools.commits import ROOT


def test_a_figure_above_its_budget_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    within, above = (size.Measure(name, lambda: 1_200, budget, 0) for name, budget in (("a", 1_200), ("b", 1_199)))
    monkeypatch.setattr(size, "MEASURES", (within, above))
    assert size.main(["--check"]) == 1
    assert capsys.readouterr().out == "b: 1,200 is above its budget of 1,199\n"
    monkeypatch.setattr(size, "MEASURES", (within,))
    assert size.main(["--check"]) == 0
    assert capsys.readouterr().out == ""


def test_what_generates_is_counted_and_what_is_generated_is_not() -> None:
    counted = {str(path.relative_to(ROOT)) for path in size.files("shared/client")}
    assert "shared/client/aio/client.py" in counted
    assert "shared/client/client.py" not in counted
    assert size.product() == sum(size.lines(size.files(folder)) for folder in size.PRODUCT)
