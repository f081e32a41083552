"""Ends of tasks that are not yet in the history: registered in the step that ends a task, read in order.

An end is here until the job `history` has committed it to the database and confirmed that; an end that is read twice is
stored once, because its task and instant identify it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from firmq.shared.domain.clock import instant
from firmq.shared.domain.decode import whole_or_none
from firmq.shared.domain.lock import NO_LOCK, FencingToken
from firmq.shared.redis.client import text, translated

if TYPE_CHECKING:
    from firmq.shared.redis.scripts import Scripts

REGISTERED_FOR = timedelta(days=7)
"""How long ends are registered after the last run of a housekeeper that stores history."""
MOST_WAITING = 1_000_000
"""Ends that may wait for the history; over that the oldest are dropped, and counted."""
BEHIND = timedelta(minutes=10)
"""Lag from which something is wrong with the history; after a burst it may be some minutes behind."""
_GIVEN_UP_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class EndedTask:
    """The record of a task as it was at one of its ends, and its result as base64. No fields: it cannot be read."""

    member: str
    score: str
    fields: dict[str, bytes]
    result: bytes

    @property
    def id(self) -> str:
        return self.member.split("|")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """How the feeding of the history goes: ends that wait, and since when; dropped ends; the last error."""

    waiting: int
    lag: timedelta
    lost: int
    error: str

    @property
    def trouble(self) -> str:
        """Returns the problem, or ""."""
        if self.error:
            return self.error
        return "it is stored too slowly, or no housekeeper runs" if self.lag > BEHIND else ""

    @property
    def given_up(self) -> str:
        """Returns how many ends were dropped, to follow a sentence, or ""."""
        return f"; {self.lost:,} were dropped, because more than {MOST_WAITING:,} waited" if self.lost else ""


class Unarchived:
    """The ends that wait for the history."""

    def __init__(self, scripts: Scripts, most: int = MOST_WAITING) -> None:
        self.scripts = scripts
        self.most = most

    def take(self, limit: int, fencing_token: FencingToken = NO_LOCK, error: str = "") -> list[EndedTask]:
        """Returns the oldest ends, and has ends registered for another week. `error` is the last run's."""
        seconds = int(REGISTERED_FOR.total_seconds())
        lock = fencing_token.lock, fencing_token.token
        rows = self.scripts.call("history_take", limit, *lock, self.most, seconds, error[:500])
        return [
            EndedTask(
                text(member),
                text(score),
                {text(name): value for name, value in zip(fields[::2], fields[1::2], strict=True)},
                result or (fields[fields.index(b"result") + 1] if b"result" in fields[::2] else b""),
            )
            for member, score, fields, result in rows
        ]

    def done(self, ends: Sequence[EndedTask], fencing_token: FencingToken = NO_LOCK) -> int:
        """Removes ends that are stored; returns how many. Raises StepRefused when the lock has ended."""
        pairs = (part for end in ends for part in (end.member, end.score))
        return int(self.scripts.call("history_done", fencing_token.lock, fencing_token.token, *pairs))

    def give_up(self) -> None:
        """Ends the registration, and removes waiting entries."""
        while self.scripts.call("history_off", _GIVEN_UP_AT_ONCE):
            pass


def feed(scripts: Scripts) -> Feed | None:
    """Returns how the feeding goes; None when no housekeeper stores history."""
    keys, now = scripts.keys, instant(scripts.now_us())
    with translated(), scripts.redis.pipeline(transaction=False) as pipeline:
        pipeline.hgetall(keys.HISTORY)
        pipeline.zcard(keys.UNARCHIVED)
        pipeline.zrange(keys.UNARCHIVED, 0, 0, withscores=True)
        about, waiting, first = pipeline.execute()
    if not about:
        return None
    return Feed(
        waiting=waiting,
        lag=max(timedelta(), now - instant(first[0][1])) if first else timedelta(),
        lost=whole_or_none(about.get(b"lost", b"0")) or 0,
        error=text(about.get(b"error", b"")),
    )
