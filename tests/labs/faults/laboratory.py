"""One run: everything up, clients submit, faults come and go, quiet returns, and what is left is judged."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from redis.exceptions import RedisError

from firmq.shared.domain.task import TaskState
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.tasks import Records
from tests.labs.faults import kinds
from tests.labs.faults.clients import Client, call
from tests.labs.faults.faults import FAULTS, Fault, Happened, Scene, Undo, draw_seconds, now_ns
from tests.labs.faults.ledger import Ledger
from tests.labs.faults.site import Part, Site
from tests.support.keys import keys

CLIENTS = 4
QUIET = 90.0
"""Seconds after the last fault in which everything must have ended."""
STALL = 0.7
"""Seconds for which this process was not let run: then the machine stood still, and nobody could keep a lease."""


@dataclass
class Run:
    """What a run left behind for its judges."""

    seed: int
    site: Site
    ledger: Ledger
    happened: list[Happened] = field(default_factory=list)
    stalls: list[tuple[int, int]] = field(default_factory=list)
    seen: int = 0
    """When the dashboard last answered."""
    stuck: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    wall_offset_ns: int = field(default_factory=lambda: max(time.time_ns() - time.monotonic_ns() for _ in range(20)))
    """What the clock of the wall, and of Redis, shows more than the monotonic one."""


@dataclass
class _Going:
    fault: Fault
    happened: Happened
    undo: Undo
    until: float


class Laboratory:
    """Runs the faults that a seed draws. Use it in the main thread: processes end with the thread that started them."""

    def __init__(
        self,
        site: Site,
        seed: int,
        faults: Sequence[Fault] = FAULTS,
        *,
        pause: float = 0.12,
        patience: float = QUIET,
        small: bool = False,
    ) -> None:
        self.patience = patience
        self.run = Run(seed, site, Ledger(site.folder))
        self.dice = Random(seed)
        self.faults = list(faults)
        self.going: list[_Going] = []
        self.deck: list[Fault] = []
        self.clients = [Client(at, seed, {}, self.run.ledger, pause) for at in range(CLIENTS)]
        for client in self.clients:
            client.shares = kinds.BUSY if small else kinds.SHARES
        self._over = threading.Event()
        site.while_waiting = self._end_what_is_over

    @property
    def site(self) -> Site:
        return self.run.site

    def work(self, seconds: float) -> Run:
        """Everything but the judging; the site is still up afterwards."""
        began = time.monotonic()
        self.site.open()
        for client in self.clients:
            client.gateways = self.site.gateways
            client.start()
        watchers = [threading.Thread(target=each, daemon=True) for each in (self._watch_stalls, self._visit)]
        for each in watchers:
            each.start()
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                self._wave()
        finally:
            self._heal()
        self._come_to_rest()
        self._over.set()
        for each in watchers:
            each.join()
        self.run.seconds = time.monotonic() - began
        return self.run

    # --- faults ---

    def _wave(self) -> None:
        """One fault, or several together, until all of them are over."""
        for _ in range(self.dice.choices([1, 2, 3], [4, 3, 2])[0]):
            self._begin(self._draw())
            self._wait(self.dice.uniform(0, 0.6))
        while self.going:
            self._wait(0.05)
        self._wait(self.dice.uniform(0.2, 1.5))

    def _draw(self) -> Fault:
        """Each once before any comes again."""
        if not self.deck:
            self.deck = list(self.faults)
            self.dice.shuffle(self.deck)
        return self.deck.pop()

    def _begin(self, fault: Fault) -> None:
        victim = self._victim(fault)
        if fault.takes in ("redis", "data"):
            if any(each.fault.takes == fault.takes for each in self.going):
                self.deck.insert(0, fault)
                return
        elif victim is None:
            self.deck.insert(0, fault)
            return
        happened = Happened(fault.name, victim.name if victim else fault.takes, 0, pids=victim.tree() if victim else [])
        seconds = draw_seconds(fault, self.dice)
        happened.begin_ns = now_ns()
        undo = fault.begin(Scene(self.site, self.run.ledger, self.dice, seconds, happened, victim))
        self.run.happened.append(happened)
        self.going.append(_Going(fault, happened, undo, time.monotonic() + seconds))

    def _victim(self, fault: Fault) -> Part | None:
        """A part that no fault has now."""
        taken = {each.happened.victim for each in self.going}
        free = [
            part for part in self.site.parts.values() if fault.takes in (part.kind, "part") and part.name not in taken
        ]
        return self.dice.choice(free) if free else None

    def _wait(self, seconds: float) -> None:
        """Lets time pass, ends what is over, and starts again who died without a fault."""
        end = time.monotonic() + seconds
        while True:
            self._end_what_is_over()
            self.site.look()
            if time.monotonic() >= end:
                return
            time.sleep(0.02)

    def _end_what_is_over(self) -> None:
        for each in [each for each in self.going if each.until <= time.monotonic()]:
            if each in self.going:
                self._end(each)

    def _end(self, going: _Going) -> None:
        self.going.remove(going)
        going.undo()
        going.happened.end_ns = now_ns()

    # --- quiet ---

    def _heal(self) -> None:
        for each in list(self.going):
            self._end(each)
        for part in self.site.parts.values():
            part.heal()
        self.site.tell(lambda redis: redis.delete(keys.PAUSED))

    def _come_to_rest(self) -> None:
        """Waits until all clients are answered and every task has ended.

        Who has not when the quiet is over, or when nothing has changed for as long as our patience lasts, is stuck.
        """
        end = time.monotonic() + QUIET
        for client in self.clients:
            client.stop(QUIET / 2)
        for client in self.clients:
            while client.is_alive() and time.monotonic() < end:
                self.site.look()
                client.join(0.1)
        records = Records(Scripts(self.site.admin), kinds.QUEUES)
        counts: dict[TaskState, int] = {}
        waiting: dict[TaskState, int] = {}
        changed_at = time.monotonic()
        while time.monotonic() < min(end, changed_at + self.patience):
            self.site.look()
            before, counts = counts, _counts(records)
            if counts != before:
                changed_at = time.monotonic()
            waiting = {state: count for state, count in counts.items() if count and not state.ended}
            if not waiting and self._tidy():
                return
            time.sleep(0.1)
        self.run.stuck = Counter({str(state): count for state, count in waiting.items()})

    def _tidy(self) -> bool:
        """Stale tickets, debts and rings are gone: housekeeping and idle workers have come round once more."""
        per_lane = (key(lane) for key in (keys.rq_queue, keys.wakeup) for lane in kinds.LANES)
        return not self.site.admin.exists(keys.DEFERRED_WORK, keys.WAKEUP, *per_lane)

    # --- watching ---

    def _watch_stalls(self) -> None:
        before = time.monotonic_ns()
        while not self._over.wait(0.05):
            now = time.monotonic_ns()
            if now - before > STALL * 1e9:
                self.run.stalls.append((before, now))
            before = now

    def _visit(self) -> None:
        """Somebody looks at the dashboard."""
        while not self._over.wait(0.5):
            for part in self.site.of("dashboard"):
                if call(part.address, "GET", "/").status == 200:
                    self.run.seen = now_ns()


def _counts(records: Records) -> dict[TaskState, int]:
    try:
        return dict(records.counts())
    except (RedisError, OSError):
        return {TaskState.PENDING: -1}


def names(faults: Sequence[Fault] = FAULTS) -> list[str]:
    return [fault.name for fault in faults]
