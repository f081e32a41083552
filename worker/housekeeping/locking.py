"""Lock strategies: most jobs take their lock for each run, the leader keeps its lock between runs."""

from __future__ import annotations

import logging
from typing import Protocol

from firmq.shared.domain.lock import Lock
from firmq.shared.failpoints import failpoint
from firmq.shared.stores.locks import FreeLock, HeldLock, Locks, unanswered

log = logging.getLogger(__name__)


class LockStrategy(Protocol):
    """How a job takes its lock."""

    def begin(self) -> HeldLock | None:
        """Returns the lock for one run, or None when another instance holds it."""
        ...

    def end(self, held: HeldLock) -> None:
        """Ends the run."""
        ...


class RoundByRound:
    """A lock that is taken for each run and released after it."""

    def __init__(self, locks: Locks, lock: Lock, instance: str) -> None:
        self.locks = locks
        self.lock = lock
        self.instance = instance

    def begin(self) -> HeldLock | None:
        held = self.locks.acquire(self.lock)
        if held:
            log.debug("Acquired distributed lock %s by instance %s", self.lock.name, self.instance)
        else:
            log.debug("Skipping task %s - already running on another instance", self.lock.name)
        return held

    def end(self, held: HeldLock) -> None:
        held.release()


class Everywhere:
    """No lock, for a job that each instance does for itself."""

    def begin(self) -> HeldLock | None:
        return FreeLock("everywhere")

    def end(self, held: HeldLock) -> None:
        pass


class OnLeader:
    """The lock of the leader, for a job that only the leader does."""

    def __init__(self, leadership: Leadership) -> None:
        self.leadership = leadership

    def begin(self) -> HeldLock | None:
        return self.leadership.held()

    def end(self, held: HeldLock) -> None:
        pass


class Leadership:
    """A lock that its holder keeps until it is lost, taken away, or the process ends.

    It lives longer than the others, so that a slow leader keeps it. Another instance takes it from a leader that has
    not renewed it for the lease, which is dead or frozen.
    """

    def __init__(self, locks: Locks, lock: Lock, instance: str) -> None:
        self.locks = locks
        self.lock = lock
        self.instance = instance
        self.elections = 0
        self.term = 0
        self._held: HeldLock | None = None

    def begin(self) -> HeldLock | None:
        if self.leads():
            return self._held
        self.resign()
        held = self.locks.acquire(self.lock)
        if held:
            failpoint("leader.elected")
            self.elections += 1
            self.term = held.term
            log.info("Instance %s elected as metrics leader", self.instance)
        self._held = held
        return held

    def end(self, held: HeldLock) -> None:
        pass

    def held(self) -> HeldLock | None:
        """Returns the lock of the leader; None when this instance does not lead."""
        held = self._held
        return held if held is not None and self.leads() else None

    def leads(self) -> bool:
        """Returns whether this instance leads. While Redis does not answer the lock is trusted for a while."""
        held = self._held
        try:
            return held is not None and held.extend()
        except unanswered():
            return held is not None and held.trusted

    def resign(self) -> None:
        """Gives up leadership; first here, then in Redis, so that there are never two leaders."""
        held, self._held = self._held, None
        if held:
            log.info("Instance %s is no longer the metrics leader", self.instance)
            held.release()
