"""For RQ's own programs: `Worker` for `rq worker -w`, and the function that every task names in RQ's record."""

from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from firmq.worker.features.rq.worker_class import Worker

__all__ = ["Worker", "refuse"]


def __getattr__(name: str) -> object:
    if name != "Worker":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from firmq.worker.features.rq.worker_class import Worker

    return Worker


def refuse(task_type: str, data: object) -> NoReturn:
    """Refuses to run a task in a stock RQ worker, which every task does (see `shared.domain.task_data`).

    Always raises RuntimeError.
    """
    raise RuntimeError(
        f"{task_type!r} is a task of Firmq, which an RQ worker does not run: let this worker serve queues of RQ "
        "only. The task is not lost: its queue entry is put back, and `firmq worker` runs it"
    )
