"""Task types of `make verify-kubernetes`, mounted into the workers: one that takes time, one that takes memory."""

from __future__ import annotations

import time

from firmq import task


@task("slowly")
def slowly(seconds: float) -> None:
    """Takes so long."""
    time.sleep(seconds)


@task("hungry", max_retries=0)
def hungry(megabytes: int, at_once: bool = False) -> None:
    """Takes so much memory and holds it for a minute: little by little, or faster than it can be measured."""
    step = megabytes if at_once else 16
    held = []
    for _ in range(megabytes // step):
        held.append(b"x" * (step << 20))
        time.sleep(0 if at_once else 0.1)
    time.sleep(60)
