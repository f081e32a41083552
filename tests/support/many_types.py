"""As many task types as the environment says, to see what they cost a worker that has nothing to do."""

from __future__ import annotations

import os

from firmq.worker.handlers.registry import task


def _handler(order: int, name: str = "nobody", tags: tuple[str, ...] = ()) -> str:
    """Says whose order it is."""
    return f"{name} {order} {tags}"


for number in range(int(os.environ.get("MANY_TYPES", "1000"))):
    task(f"many-{number}")(_handler)
