"""The function that every task names in RQ's record: RQ's workers run no task (see `shared.domain.task_data`)."""

from typing import NoReturn


def refuse(task_type: str, data: object) -> NoReturn:
    """Refuses to run a task in a stock RQ worker: always raises RuntimeError."""
    raise RuntimeError(
        f"{task_type!r} is a task of Task Queue, which an RQ worker does not run: let this worker serve queues of RQ "
        "only. The task is not lost: its queue entry is put back, and `taskqueue worker` runs it"
    )
