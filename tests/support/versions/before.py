"""The handlers before the update."""

from __future__ import annotations

from firmq.worker.handlers.registry import task


@task("ship")
def ship(order: int) -> list[object]:
    """Sends an order to nobody in particular."""
    return ["before", order]


@task("going")
def going(order: int) -> list[object]:
    """Exists before the update only."""
    return ["going", order]


@task("waits")
def waits(order: int) -> list[object]:
    """Runs one at a time."""
    return ["before", order]
