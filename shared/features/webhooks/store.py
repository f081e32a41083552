"""Repeats deliveries. Those of a task are listed with it, by `Records.deliveries`."""

from __future__ import annotations

from firmq.shared.domain.task import TaskState
from firmq.shared.errors import IllegalTransition, TaskNotFound
from firmq.shared.redis.client import text, translated
from firmq.shared.redis.scripts import Scripts


def redeliver(scripts: Scripts, delivery_id: str) -> str:
    """Repeats an ended webhook delivery; returns the id of the new one.

    Raises TaskNotFound for an unknown delivery, and IllegalTransition when it has not ended, or when the task that it
    reports has been removed.
    """
    with translated():
        state, repeated = map(text, scripts.call_answered("redeliver", delivery_id))
    if not state:
        raise TaskNotFound(id=delivery_id)
    if not repeated:
        ended = TaskState(state).ended
        rule = "the task that it reports has been removed" if ended else "it is already in progress"
        raise IllegalTransition(f"the delivery is {state}: {rule}", state=state)
    return repeated
