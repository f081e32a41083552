"""`emit`: output that others can read while the task runs."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from firmq.worker.features.durable.sleeping import DONE
from firmq.worker.features.durable.steps import awaited, in_thread, replay_of_current_task

if TYPE_CHECKING:
    from firmq.worker.features.durable.replay import Replay


def emit(chunk: Any) -> Awaitable[None]:
    """Appends a chunk, text or what JSON has, to the output of the task; `GET /tasks/{id}/stream` sends it at once.

    Chunks keep their order, and each is stored once. An attempt that runs again appends behind the earlier ones, with
    its number; inside of a step's function a chunk is not repeated. A task stores MAX_OUTPUT_BYTES; what exceeds them
    is left out, which readers are told. In an `async def` handler the call is awaited. Outside of a task it does
    nothing.

    Raises LeaseLost, ResultNotSerializable and ResultTooLarge.
    """
    replay = replay_of_current_task()
    if awaited(replay):
        return _emit_async(replay, chunk)
    if replay is not None:
        replay.emit(chunk)
    return DONE


async def _emit_async(replay: Replay | None, chunk: Any) -> None:
    if replay is not None:
        await in_thread(replay.emit, chunk)
