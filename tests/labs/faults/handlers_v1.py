"""The application of the laboratory before an update: one type is about to change, another to go."""

from __future__ import annotations

from firmq import task
from tests.labs.faults.handlers import run


@task("lab-changed")
def changed(n: int, kind: str) -> int:
    """Before it asks for a name."""
    return run(n, kind)


@task("lab-old")
def old(n: int, kind: str) -> int:
    """Nobody runs it after the update."""
    return run(n, kind)


@task("lab-turned")
def turned(n: int, kind: str, seconds: float) -> int:
    """Runs one at a time before the update."""
    return run(n, kind, seconds)
