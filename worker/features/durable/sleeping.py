"""`sleep`: the task leaves its executor, and runs again when the time has come."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import Any

from firmq.shared.domain.clock import instant, instant_us, to_us
from firmq.shared.domain.step import Step, StepKind
from firmq.worker.features.durable.replay import Replay
from firmq.worker.features.durable.steps import awaited, in_thread, replay_of_current_task
from firmq.worker.handlers.signals import TaskSuspended


def sleep(duration: timedelta | float, name: str = "sleep") -> Awaitable[None]:
    """Ends the attempt and runs the task again after this time, a timedelta or seconds; then it returns at once.

    Meanwhile the task is scheduled: it occupies no executor, and costs no retry. The time counts from the first call.
    `name` is unique within the task, also among its steps. In an `async def` handler it is awaited. Outside of a task
    it returns at once.

    Raises TaskSuspended, which ends the attempt, and ValueError for less than 0 seconds or more than MAX_DELAY.
    """
    return _slept(name, duration if isinstance(duration, timedelta) else timedelta(seconds=duration))


def sleep_until(moment: datetime, name: str = "sleep") -> Awaitable[None]:
    """Ends the attempt and runs the task again at this time, which has a time zone; otherwise as `sleep`."""
    if moment.tzinfo is None:
        raise ValueError(f"sleep_until needs a time with a time zone, such as {datetime.now(UTC).isoformat()}")
    return _slept(name, moment)


def _slept(name: str, length: timedelta | datetime) -> Awaitable[None]:
    replay = replay_of_current_task()
    if awaited(replay):
        return _sleep_async(replay, name, length)
    if replay is not None:
        _sleep(replay, name, length)
    return DONE


def _sleep(replay: Replay, name: str, length: timedelta | datetime) -> None:
    stored = replay.begin(name)
    began_us = replay.now_us()
    if stored is None:
        until_us = began_us + check_length(replay, f"sleep {name!r}", length, began_us)
        stored = replay.save(name, StepKind.SLEEP, None, began_us, ended_us=until_us)
    if not _is_over(stored, began_us):
        raise suspension(stored, f"sleeps in step {name!r}", f"sleep {name}")


async def _sleep_async(replay: Replay | None, name: str, length: timedelta | datetime) -> None:
    if replay is not None:
        await in_thread(_sleep, replay, name, length)


def check_length(replay: Replay, what: str, length: timedelta | datetime, now_us: int = 0) -> int:
    """Returns a length in microseconds. Raises ValueError for one that is too long or, unless an instant, negative."""
    length_us = to_us(length) if isinstance(length, timedelta) else max(0, instant_us(length) - now_us)
    if not 0 <= length_us <= to_us(replay.longest_sleep):
        raise ValueError(
            f"{what} has to last from 0 to {replay.longest_sleep.total_seconds():.15g} seconds (MAX_DELAY), "
            f"got {length_us / 1_000_000:.15g}"
        )
    return length_us


def _is_over(stored: Step, now_us: int) -> bool:
    return stored.kind is not StepKind.SLEEP or stored.ended_at is None or instant_us(stored.ended_at) <= now_us


def suspension(stored: Step, what: str, awaits: str) -> TaskSuspended:
    """Returns the exception that ends the attempt until the end of a sleep or a wait."""
    until_us = instant_us(stored.ended_at) if stored.ended_at else 0
    return TaskSuspended(f"{what}, until {instant(until_us).isoformat(timespec='seconds')}", until_us, awaits)


class _Done:
    """What a plain function gets: awaiting it returns at once."""

    def __await__(self) -> Any:
        return iter(())


DONE = _Done()
"""What a call that is over returns to a plain function."""
