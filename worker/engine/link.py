"""A worker's link to one store: its session, its claims in both lanes, and its notifications."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from redis.exceptions import RedisError

if TYPE_CHECKING:
    from firmq.worker.engine.claimed_task import ClaimedTask
    from firmq.worker.engine.lane import Lane
    from firmq.worker.engine.lane_claims import LaneClaims
    from firmq.worker.engine.notifications import Notifications
    from firmq.worker.engine.redis_session import RedisSession

AGE_TURN = 4
"""One claim in so many goes to the store where tasks wait longest; the others go to the worker's home first."""


class Due(Protocol):
    """Requests work that is due soon; a `threading.Event` is one."""

    def set(self) -> None:
        """Requests it."""


class HeartbeatsDue:
    """Requests a heartbeat to each store; an event for all of them would be cleared by the first."""

    def __init__(self) -> None:
        self.events: list[threading.Event] = []

    def set(self) -> None:
        for event in self.events:
            event.set()


class StoreLink:
    """The loop's state of one store."""

    def __init__(
        self, session: RedisSession, claims: Mapping[str, LaneClaims], notifications: Notifications, number: int = 0
    ) -> None:
        """`claims` maps the suffix of each lane to its claims."""
        self.session = session
        self.claims = claims
        self.notifications = notifications
        self.number = number
        self.types_known = False
        """Whether its gateways know the task types of this worker, which claims nothing before."""
        self.outage_since: float | None = None
        self.next_try = 0.0
        self.next_extend = 0.0
        self.probed = False
        """Whether a thread waits for its answer: until then the loop does not call it."""
        self.oldest_us = 0
        """When the last task that was claimed there was enqueued; 0: none waited."""

    @property
    def unanswered(self) -> bool:
        """Returns whether an answer to a claim may have been lost."""
        return any(each.unanswered for each in self.claims.values())

    def of(self, lane: Lane) -> LaneClaims:
        """Returns its claims for a lane."""
        return self.claims[lane.suffix]

    def probe(self, pause: float, on_answer: Callable[[], None]) -> None:
        """Stops calls until it answers; a thread pings it every `pause` seconds, and then calls `on_answer`."""
        if not self.probed:
            self.probed = True
            thread = threading.Thread(target=self._probe, args=(pause, on_answer), name="probe", daemon=True)
            thread.start()

    def _probe(self, pause: float, on_answer: Callable[[], None]) -> None:
        while self.probed:
            time.sleep(pause)
            with suppress(RedisError, OSError):
                self.session.scripts.redis.ping()
                self.probed = False
        on_answer()

    def on_claimed(self, claimed: Sequence[ClaimedTask], size: int) -> None:
        """Learns how long tasks wait here."""
        self.oldest_us = claimed[-1].enqueued_us if len(claimed) >= size > 0 else 0


class ClaimOrder:
    """In which order a worker claims from stores: its home first, but now and then where tasks wait longest."""

    def __init__(self, links: Sequence[StoreLink]) -> None:
        """The first link is the one to the worker's home."""
        self.links = links
        self._count = 0

    def __iter__(self) -> Iterator[StoreLink]:
        if len(self.links) == 1:
            return iter(self.links)
        self._count = (self._count + 1) % AGE_TURN
        if self._count:
            return iter(self.links)
        return iter(sorted(self.links, key=lambda link: (not link.oldest_us, link.oldest_us)))
