"""The task of this laboratory: it notes that it ran."""

from __future__ import annotations

import os

from firmq import current_task, task


@task("order")
def order(order: str) -> None:
    note = f"{current_task().id} {current_task().attempt}\n"
    file = os.open(os.environ["OUTBOX_LAB_RUNS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, note.encode())
    os.close(file)
