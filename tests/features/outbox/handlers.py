"""The handler whose tasks these tests submit."""

from __future__ import annotations

from firmq import task


@task("outbox-invoice")
def invoice(order: int) -> None:
    pass
