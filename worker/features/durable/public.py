"""Durable functions: steps of a handler that are stored, and not repeated when its task runs again."""

from firmq.worker.features.durable.children import Children, gather, start_children
from firmq.worker.features.durable.emitting import emit
from firmq.worker.features.durable.restarting import continue_as_new
from firmq.worker.features.durable.resuming import resumable
from firmq.worker.features.durable.sleeping import sleep, sleep_until
from firmq.worker.features.durable.steps import stable_id, stable_now, stable_random, step
from firmq.worker.features.durable.waiting import wait_for, wait_for_async

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
