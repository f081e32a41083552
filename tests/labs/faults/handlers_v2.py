"""The same application after its update."""

from __future__ import annotations

from tests.labs.faults.handlers import run
from worker import task


@task("lab-changed")
def changed(n: int, kind: str, name: str) -> int:
    """Asks for a name now."""
    return run(n, kind)


@task("lab-new")
def new(n: int, kind: str) -> int:
    """Nobody ran it before the update."""
    return run(n, kind)
