"""`continue_as_new`: the task begins anew with other data, and without the steps that it has stored."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from firmq.worker.features.durable.replay import Replay
from firmq.worker.features.durable.steps import awaited, in_thread, replay_of_current_task
from firmq.worker.handlers.signals import TaskSuspended


def continue_as_new(data: Any = None) -> Any:
    """Ends the attempt and runs the task again with this data, as if it had been submitted with it.

    For a loop without an end, whose steps would reach MAX_STEPS: the stored steps are removed. The task keeps its id,
    its attempts, its output, and the signals that no `wait_for` has returned; children that it has started run on by
    themselves. In an `async def` handler the call is awaited.

    Raises TaskSuspended, which ends the attempt, LeaseLost, ResultNotSerializable, ResultTooLarge, ValueError for data
    that the handler does not take, and RuntimeError outside of a task.
    """
    replay = replay_of_current_task()
    if replay is None:
        raise RuntimeError("continue_as_new works only inside a task: test the handler with LocalClient")
    return in_thread(_restart, replay, data) if awaited(replay) else _restart(replay, data)


def _restart(replay: Replay, data: Any) -> None:
    json = replay.encode(data, "the handler", "the data for continue_as_new")
    try:
        replay.handler.read(json)
    except ValidationError as error:
        raise ValueError(f"continue_as_new got data that its handler does not take: {error}") from None
    replay.restart(json)
    raise TaskSuspended("continues as new", replay.now_us(), "")
