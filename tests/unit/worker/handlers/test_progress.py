"""Progress never fails the task that reports it."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from firmq import LocalClient, report_progress, task
from firmq.shared.config.settings import Settings
from firmq.worker.handlers.registry import Registry


class Silent:
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("fraction", "message", "shown"),
    [
        (1.0000000000000007, "", (1.0, "")),
        (-1e-17, "", (0.0, "")),
        (50, "half", (1.0, "half")),
        (float("nan"), "", (0.0, "")),
        (float("inf"), "", (1.0, "")),
        (Decimal("0.5"), None, (0.5, "")),
        (Fraction(1, 2), ValueError("x"), (0.5, "x")),
        (True, "x" * 600, (1.0, "x" * 500)),
        ("half", "", None),
        (None, "", None),
        (0.5, Silent(), None),
        (1j, "", None),
    ],
)
def test_odd_progress_is_clamped_or_left_out(fraction: Any, message: Any, shown: tuple[float, str] | None) -> None:
    registry, local = Registry(), LocalClient([], settings=Settings())
    task("works", registry=registry)(lambda: report_progress(fraction, message))
    local.handlers = registry.handlers
    ended = local.get(local.submit("works", {}).task_id)
    assert ended.status == "completed"
    assert (ended.progress and (ended.progress.fraction, ended.progress.message)) == shown
