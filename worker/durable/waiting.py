"""`wait_for`: the task leaves its executor, and runs again when a signal for it arrives."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from taskqueue.shared.domain.clock import instant_us
from taskqueue.shared.domain.step import SIGNAL, SIGNAL_NAME, StepKind
from taskqueue.worker.durable.replay import Replay
from taskqueue.worker.durable.sleeping import check_length, suspension
from taskqueue.worker.durable.steps import awaited, in_thread, replay_of_current_task
from taskqueue.worker.handlers.signals import SignalTimeout


def wait_for(signal: str, timeout: timedelta | float | None = None) -> Any:
    """Returns the data of a signal. Before it arrives, ends the attempt; the task runs again when it arrives.

    Meanwhile the task is scheduled and occupies no executor. A signal that was sent before is returned at once. Signals
    are sent by `POST /tasks/{id}/signals/{name}`, `client.signal`, `taskqueue signal` and the task's page. `timeout`
    is a timedelta or seconds, MAX_DELAY at most and by default, and counts from the first call. A task accepts one
    signal of each name. In an `async def` handler the call is awaited.

    Raises SignalTimeout, TaskSuspended, which ends the attempt, RuntimeError outside of a task, and ValueError for a
    name or a time-out that cannot be used.
    """
    replay = replay_of_current_task()
    if replay is None:
        raise RuntimeError(f"wait_for({signal!r}) works only inside a task: test the handler with LocalClient")
    length = timedelta(seconds=timeout) if isinstance(timeout, int | float) else timeout
    return in_thread(_wait, replay, signal, length) if awaited(replay) else _wait(replay, signal, length)


def _wait(replay: Replay, signal: str, timeout: timedelta | None) -> Any:
    if not SIGNAL_NAME.fullmatch(signal):
        raise ValueError(f"the name of a signal is 1 to 90 characters out of A-Z a-z 0-9 . _ -, got {signal[:100]!r}")
    name = f"{SIGNAL}{signal}"
    stored = replay.begin(name)
    now_us = replay.now_us()
    if stored is None:
        length_us = check_length(replay, f"wait_for({signal!r})", timeout or replay.longest_sleep)
        stored = replay.save(name, StepKind.WAIT, None, now_us, ended_us=now_us + length_us)
    if stored.kind is StepKind.WAIT and stored.ended_at and instant_us(stored.ended_at) <= now_us:
        began_us = instant_us(stored.started_at) if stored.started_at else now_us
        stored = replay.save(name, StepKind.TIMEOUT, None, began_us)
    if stored.kind is StepKind.WAIT:
        raise suspension(stored, f"waits for signal {signal!r}", f"signal {signal}")
    if stored.kind is StepKind.TIMEOUT:
        raise SignalTimeout(f"signal {signal!r} did not arrive in time")
    return stored.value
