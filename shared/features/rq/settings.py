"""Jobs of RQ programs, and tasks that are RQ jobs."""

from __future__ import annotations

from firmq.shared.config.groups.group import Group, at
from firmq.shared.config.values import Names
from firmq.shared.domain.queue_selection import adopted_queue


class RqSettings(Group):
    """Jobs of RQ programs, and tasks that are RQ jobs."""

    rq_queues: Names = at(
        "worker.rq.queues",
        (),
        "Queues of RQ programs whose jobs this worker runs, the most important first.",
    )
    rq_allow: Names = at(
        "worker.rq.allow",
        (),
        "Functions and classes that jobs of RQ programs may name, such as shop.*; all others are refused, and not "
        "imported. The same for all workers that serve a queue of RQ_QUEUES.",
    )
    rq_task_queues: Names = at(
        "worker.rq.task_queues",
        (),
        "Queues of RQ into which tasks of the type rq enqueue jobs, the default one first; without it, the type is not "
        "offered. All callers that may submit tasks can call what RQ_ALLOW names, except by patterns whose first name "
        "has a wildcard. For systems with one Redis.",
    )
    rq_pickle: bool = at(
        "worker.rq.pickle",
        False,
        "Also runs pickled jobs of RQ programs, which is RQ's default; false: only jobs of RQ's JSON serializer.",
    )
    rq_result_ttl: int = at(
        "worker.rq.result_ttl",
        500,
        "Seconds for which results of RQ programs' jobs are kept that set no result_ttl, as `--results-ttl` of "
        "`rq worker`; -1: forever.",
        ge=-1,
    )

    @property
    def rq_calls(self) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """Returns the queues and functions of tasks of the type `rq`; None when they are off.

        A pattern such as `*.*` allows nothing here: all callers that submit tasks could call any function.
        """
        allow = tuple(each for each in self.rq_allow if not set("*?[") & set(each.partition(".")[0]))
        return (self.rq_task_queues, allow) if self.rq_task_queues and allow else None

    def check(self) -> None:
        """Raises ValueError where RQ_ALLOW lets none of the jobs run."""
        if self.rq_queues and not self.rq_allow:
            raise ValueError("RQ_QUEUES needs RQ_ALLOW: name the functions that jobs may call, such as shop.tasks.*")
        if self.rq_task_queues and not self.rq_calls:
            raise ValueError("RQ_TASK_QUEUES needs RQ_ALLOW with a first name without wildcards, such as shop.tasks.*")

    def modules(self) -> tuple[str, ...]:
        """Returns the handlers of jobs, and of tasks that are jobs."""
        jobs = ("firmq.worker.features.rq.handler",) if self.rq_queues else ()
        return (*jobs, "firmq.worker.features.rq.rq_task") if self.rq_calls else jobs

    def queues_beside(self) -> dict[str, str]:
        """Returns the queues of RQ_QUEUES, each with the queue of the tasks that are made of its jobs."""
        return {name: adopted_queue(name) for name in self.rq_queues}
