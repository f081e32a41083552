"""The claims of one lane of a worker: one is open at a time, and is repeated after a lost answer."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from firmq.worker.engine.claimed_queues import ClaimedQueues
from firmq.worker.engine.claimed_task import ClaimedTask, ClaimReply, read_claim
from firmq.worker.engine.queue_weights import NO_BOUNDS, Strict, WeightedRoundRobin

if TYPE_CHECKING:
    from firmq.shared.redis.scripts import Argument

_CLAIM_BYTES = 4 << 20
"""Bytes of data of one claim: a worker's memory is bounded, whatever clients send."""

Scores = tuple[float | None, float | None]
ASK_AGAIN = 1.0
"""Seconds between the claims of an idle worker that takes some scores only."""


class LaneClaims:
    """The state of a lane's claims.

    A claim keeps its token until it is answered. One that finds too few tasks leaves a parked claim, which a submission
    may answer; it carries the token of the next claim.
    """

    def __init__(self, worker: str, queues: ClaimedQueues, suffix: str = "", scores: Scores = (None, None)) -> None:
        """`suffix` follows the names of queues, as in `keys.rq_queue`.

        `scores` are the lowest and the highest that it claims, None for no bound. With one no claim is parked and no
        wake-up is waited for, as either may be for a task that this worker does not take: it claims every second.
        """
        self.worker = worker
        self.queues = queues
        self.suffix = suffix
        self._division = Strict() if queues.selection.strict else WeightedRoundRobin()
        self._patterns = queues.selection.lua_patterns() if queues.selection.patterns else ""
        self._scores = tuple("" if each is None else repr(each) for each in scores)
        self._is_bounded = scores != (None, None)
        self._changes = -1
        self.unanswered = False
        self.parked = self.exhausted = False
        self.work_likely = True
        self.awaiting_work = False
        self.next_token = float("inf")
        self.again_in: float | None = None
        """Seconds until a rate limit allows the next start; `next_token` is when that is."""
        self.token, self._next_token = _new_token(), _new_token()
        self.asked_at, self.answered_us = 0.0, 0

    def arguments(self, size: int, lease_us: int, slots: Mapping[str, int] = NO_BOUNDS) -> list[Argument]:
        """Returns the arguments of `claim.lua`. `slots` is how many tasks it may take of some lanes."""
        self.unanswered = True
        if self._changes != self.queues.changes:
            self._changes = self.queues.changes
            weight = self.queues.selection.weight
            self._division.set({queue + self.suffix: weight(queue) for queue in self.queues.active})
        return [
            self.worker,
            self.token,
            lease_us,
            size,
            _CLAIM_BYTES,
            self.suffix,
            self._next_token if size and not self._is_bounded else "",
            self._patterns,
            *self._scores,
            *self._division.quotas(size, slots),
        ]

    def takes(self, lane: str) -> bool:
        """Returns whether this is a lane of a queue that the worker takes from."""
        return bool(lane) and self.queues.selection.takes(lane.removesuffix("+"))

    def answer(
        self, reply: ClaimReply, size: int | None, sent_at: float, received_us: int, lease: float
    ) -> list[ClaimedTask]:
        """Returns the claimed tasks of an answer; without a `size` it answers a parked claim."""
        claimed = read_claim(reply, self.token, sent_at, received_us, lease)
        for each in claimed:
            each.lane = self.suffix
            self.queues.touch(each.queue_name)
        self.again_in = reply.again_in_us / 1_000_000 if reply.again_in_us >= 0 else None
        self.exhausted = size is not None and len(claimed) < size and not reply.more
        self.unanswered = self.parked = self.exhausted and not self._is_bounded
        if self._is_bounded:
            self.again_in = ASK_AGAIN if self.again_in is None else min(self.again_in, ASK_AGAIN)
        self.token, self._next_token = self._next_token, _new_token()
        if size is not None:
            self.asked_at, self.answered_us = sent_at, int(reply.now_us)
        return claimed


def _new_token() -> str:
    """Returns a new token for a claim: a counter would repeat after a restore of Redis from an older file."""
    return uuid.uuid4().hex
