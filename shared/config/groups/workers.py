"""Workers and their executors."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Literal

from firmq.shared.config.groups.group import Group, at
from firmq.shared.config.values import Executors, Names, Seconds, SelectedQueues
from firmq.shared.domain.task_fields import HIGHEST_SCORE


class WorkerSettings(Group):
    """Workers and their executors."""

    task_modules: Names = at(
        "worker.task_modules", ("firmq.worker.handlers.examples",), "Modules with handlers to import."
    )
    worker_hook_modules: Names = at(
        "worker.hook_modules",
        (),
        "Modules with `worker_started` and `worker_stopping` hooks, which the main process of a worker imports.",
    )
    hook_timeout: Seconds = at(
        "worker.hook_timeout",
        30,
        "How long the hooks of an executor or worker that starts may take, and each hook of one that stops.",
        gt=0,
    )
    worker_executors: int = at(
        "worker.executors", 0, "Executor processes of a worker; 0: one per processor.", ge=0, le=256
    )
    concurrent_executors: int = at(
        "worker.concurrent_executors",
        1,
        "Executor processes of a worker for handlers that wait (`async def`, or `threads=True`); started if there are "
        "such handlers.",
        ge=0,
        le=256,
    )
    executor_slots: int = at(
        "worker.executor_slots",
        0,
        "Tasks that one of these processes runs at a time; 0: 100, and 16 in a Django project (with "
        "firmq.django.handlers in TASK_MODULES), where each thread may take a database connection.",
        ge=0,
        le=10_000,
    )
    worker_queues: SelectedQueues = at(
        "worker.queues",
        {},
        "Queues that this worker takes from: names and patterns such as gpu-*, each optionally with a weight that "
        "overrides QUEUES (gpu-*:5, default:1); empty: all.",
        max_length=100,
    )
    queue_order: Literal["weighted", "strict"] = at(
        "worker.queue_order",
        "weighted",
        "weighted: this worker divides its claims between queues by weight. strict: it takes from a queue only while "
        "those before it in WORKER_QUEUES are empty.",
    )
    queue_executors: Executors = at(
        "worker.queue_executors",
        {},
        "Maximum executors per worker that run tasks of a queue at once, such as low:1, so that its long tasks leave "
        "the other executors free.",
    )
    worker_min_score: float | None = at(
        "worker.min_score", None, "Lowest score of the tasks that this worker claims.", ge=0, le=HIGHEST_SCORE
    )
    worker_max_score: float | None = at(
        "worker.max_score", None, "Highest score of the tasks that this worker claims.", ge=0, le=HIGHEST_SCORE
    )
    task_timeout: Seconds = at("worker.task_timeout", 600, "Time limit of a task that sets none.", gt=0)
    kill_grace: Seconds = at(
        "worker.kill_grace", 1.5, "Time from the exception of the time limit to killing the executor."
    )
    lease_time: Seconds = at("worker.lease_time", 9, "Lease on a running task; extended at a third of it.", ge=1)
    drain_grace: Seconds = at("worker.drain_grace", 25, "On SIGTERM: how long a worker lets running tasks continue.")
    executor_max_tasks: int = at(
        "worker.executor_max_tasks", 0, "Tasks after which an executor is replaced; 0: never.", ge=0
    )
    executor_recycle_memory_bytes: int = at(
        "worker.executor_recycle_memory_bytes",
        512 << 20,
        "Memory above which an executor is replaced between tasks; 0: never.",
        ge=0,
    )
    executor_max_memory_bytes: int = at(
        "worker.executor_max_memory_bytes",
        2 << 30,
        "Memory above which an executor is killed, with the processes its handlers started; 0: never.",
        ge=0,
    )

    @property
    def executors(self) -> int:
        """Returns the number of executor processes of a worker."""
        available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        return self.worker_executors or available or 1

    @property
    def slots(self) -> int:
        """Returns how many tasks a concurrent executor runs at a time."""
        return self.executor_slots or (16 if "firmq.django.handlers" in self.task_modules else 100)

    def lease(self) -> timedelta:
        return timedelta(seconds=self.lease_time)
