"""Durable functions: steps of a handler that are stored, and not repeated when its task runs again."""

from firmq.worker.durable.children import Children, gather, start_children
from firmq.worker.durable.emitting import emit
from firmq.worker.durable.restarting import continue_as_new
from firmq.worker.durable.resuming import resumable
from firmq.worker.durable.sleeping import sleep, sleep_until
from firmq.worker.durable.steps import stable_id, stable_now, stable_random, step
from firmq.worker.durable.waiting import wait_for, wait_for_async

__all__ = [
    "Children",
    "continue_as_new",
    "emit",
    "gather",
    "resumable",
    "sleep",
    "sleep_until",
    "stable_id",
    "stable_now",
    "stable_random",
    "start_children",
    "step",
    "wait_for",
    "wait_for_async",
]
