"""Figures of time: printed always, and judged where the machine does nothing else (`make figures`)."""

from __future__ import annotations

import os
import time

JUDGED = bool(os.environ.get("TEST_FIGURES"))


def judge(what: str, seconds: float, most: float) -> None:
    """A busy machine makes everything longer: a test asserts counts, orders or ratios, and gives its seconds here."""
    print(f"\n{what}: {seconds:.2f} s of at most {most:g} s")
    assert not JUDGED or seconds <= most


def judge_since(what: str, began: float, most: float) -> None:
    """`began` is on the monotonic clock."""
    judge(what, time.monotonic() - began, most)
