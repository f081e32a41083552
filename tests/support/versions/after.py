"""The handlers after the update."""

from __future__ import annotations

from firmq.worker.handlers.registry import task


@task("ship")
def ship(order: int, name: str) -> list[object]:
    """Sends an order to somebody."""
    return ["after", order, name]


@task("coming")
def coming(order: int) -> list[object]:
    """Exists after the update only."""
    return ["coming", order]


@task("waits")
async def waits(order: int) -> list[object]:
    """Runs beside others since the update."""
    return ["after", order]
