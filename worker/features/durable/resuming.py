"""`resumable`: a long loop stores its place with the task, and continues there when the task runs again."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from firmq.shared.domain.clock import instant_us
from firmq.shared.domain.step import SIGNAL, StepKind
from firmq.worker.features.durable.steps import awaited, in_thread, replay_of_current_task
from firmq.worker.handlers.signals import TaskSuspended

if TYPE_CHECKING:
    from firmq.worker.features.durable.replay import Replay

T = TypeVar("T")
Items: TypeAlias = Iterable[T] | AsyncIterable[T]
Source: TypeAlias = Items[T] | Callable[[Any], Items[T]]
_STALE = (
    "no item has the key {!r} of the checkpoint {!r}: the items must be the same in every attempt, or pass a function "
    "that returns the items behind a key"
)


def resumable(
    items: Source[T],
    *,
    key: Callable[[T], str | int],
    name: str = "checkpoint",
    every: int = 100,
    seconds: float = 10.0,
) -> Resumable[T]:
    """Returns the items for a loop, which continues behind its last checkpoint when the task runs again.

    `key` returns the key of an item, a string or a whole number, which is unique and stays the same. A checkpoint, the
    key of the last finished item, is stored after `every` items or `seconds` seconds, and at the end of the loop.
    `items` come in the same order each time: those up to the checkpoint are skipped. A function gets the key of the
    checkpoint (None without one) and returns the items behind it. `name` is unique within the task, also among its
    steps. In an `async def` handler the loop is an `async for`. Outside of a task all items are returned.

    When the worker drains, the loop ends at its next checkpoint: the attempt is interrupted, which costs no retry, and
    the task runs on another worker.

    Raises in the loop: TaskSuspended, which ends the attempt, LeaseLost, DuplicateStep, TooManySteps, LookupError if no
    item has the key of the checkpoint, TypeError for another kind of key; at once: ValueError for a name or a number
    that cannot be used.
    """
    if every < 1 or seconds < 0 or name.startswith(SIGNAL):
        raise ValueError(
            f"resumable needs every >= 1, seconds >= 0 and a name that does not begin with {SIGNAL!r}, "
            f"got {every}, {seconds:g} and {name[:100]!r}"
        )
    return Resumable(items, key, _Place(name, every, round(seconds * 1_000_000)))


class Resumable(Generic[T]):
    """Items of a loop that continues behind its last checkpoint."""

    def __init__(self, items: Source[T], key: Callable[[T], str | int], place: _Place) -> None:
        self.items = items
        self.key = key
        self.place = place

    def __iter__(self) -> Iterator[T]:
        replay, place = replay_of_current_task(), self.place
        if replay is not None and awaited(replay):
            raise TypeError("in an async def handler, loop over resumable(...) with async for")
        place.open(replay)
        if place.is_done:
            return
        items = self._behind(place)
        if isinstance(items, AsyncIterable):
            raise TypeError("loop over asynchronous items with async for, in an async def handler")
        with place.loop():
            for item in items:
                if place.skips(key := self.key(item)):
                    continue
                yield item
                if place.passed(key):
                    place.store()
        place.finish()

    async def __aiter__(self) -> AsyncIterator[T]:
        place = self.place
        await in_thread(place.open, replay_of_current_task())
        if place.is_done:
            return
        with place.loop():
            async for item in _async(self._behind(place)):
                if place.skips(key := self.key(item)):
                    continue
                yield item
                if place.passed(key):
                    await in_thread(place.store)
        await in_thread(place.finish)

    def _behind(self, place: _Place) -> Items[T]:
        """Returns the items that are left, or all of them if they have to be skipped one by one."""
        if isinstance(self.items, Iterable | AsyncIterable):  # some are callable too, such as an enumeration
            return self.items
        place.skipping = False
        return self.items(place.key)


async def _async(items: Items[T]) -> AsyncIterator[T]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


class _Place:
    """How far the loop of one attempt has come, and when that is stored."""

    def __init__(self, name: str, every: int, pause_us: int) -> None:
        self.name = name
        self.every = every
        self.pause_us = pause_us
        self.replay: Replay | None = None
        self.key: str | int | None = None
        self.items = 0
        """Finished items of all attempts."""
        self.unstored = 0
        self.skipping = False
        self.is_done = False

    def open(self, replay: Replay | None) -> None:
        """Reads the checkpoint of an earlier attempt."""
        self.replay = replay
        if replay is None:
            return
        stored = replay.begin(self.name)
        self.started_us = self.stored_us = replay.now_us()
        if stored is None:
            return
        if stored.kind is not StepKind.CHECKPOINT:
            raise ValueError(f"{self.name!r} is the name of a step of this task that is no checkpoint: use another one")
        self.key, self.items, self.is_done = stored.value["key"], stored.value["items"], stored.value["done"]
        self.skipping = self.items > 0
        if stored.started_at:
            self.started_us = instant_us(stored.started_at)

    @contextmanager
    def loop(self) -> Iterator[None]:
        """Marks the loop as open: an attempt that continues does not come to the steps of finished items."""
        if self.replay is None:
            yield
            return
        self.replay.open_loops += 1
        try:
            yield
        finally:
            self.replay.open_loops -= 1

    def skips(self, key: object) -> bool:
        """Returns whether an item was finished before. Raises TypeError for a key that is no string or whole number."""
        if not isinstance(key, str | int) or isinstance(key, bool):
            raise TypeError(f"the key of an item must be a string or a whole number, got {type(key).__name__}")
        if not self.skipping:
            return False
        self.skipping = key != self.key
        return True

    def passed(self, key: str | int) -> bool:
        """Notes that an item is finished; returns whether a checkpoint is due."""
        self.key = key
        self.items += 1
        self.unstored += 1
        return self.replay is not None and (
            self.unstored >= self.every or self.replay.now_us() - self.stored_us >= self.pause_us
        )

    def store(self) -> None:
        """Stores a checkpoint. Raises TaskSuspended when the worker drains."""
        if self._store() and self.replay is not None:
            raise TaskSuspended(
                f"its worker drains; continues behind checkpoint {self.name!r}", self.replay.now_us(), ""
            )

    def finish(self) -> None:
        """Stores that the loop is complete. Raises LookupError if the checkpoint was not among the items."""
        if self.skipping:
            raise LookupError(_STALE.format(self.key, self.name))
        self.is_done = True
        self._store()

    def _store(self) -> bool:
        if self.replay is None:
            return False
        value = {"key": self.key, "items": self.items, "done": self.is_done}
        drains = self.replay.checkpoint(self.name, value, self.started_us)
        self.unstored, self.stored_us = 0, self.replay.now_us()
        return drains
