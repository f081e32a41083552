"""The same application after its update."""

from __future__ import annotations

from firmq import task
from tests.labs.faults.handlers import run
from tests.labs.faults.handlers_waiting import wait


@task("lab-changed")
def changed(n: int, kind: str, name: str) -> int:
    """Asks for a name now."""
    return run(n, kind)


@task("lab-new")
def new(n: int, kind: str) -> int:
    """Nobody ran it before the update."""
    return run(n, kind)


@task("lab-turned")
async def turned(n: int, kind: str, seconds: float) -> int:
    """Runs beside others since the update."""
    return await wait(n, kind, seconds)
