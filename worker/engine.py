"""The worker's loop: claim tasks, hand them to executors, watch over them, report how they ended.

One thread does all of it, so a task is in one place at a time: `ready` (claimed, not handed out), an executor's
`assigned`, or the link's `reports` and `releases`. Every pass reads the executors' news, checks limits and leases
now and then, talks to Redis when there is a reason to, and hands out what is ready.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from redis.exceptions import ResponseError

from shared.errors import StoreUnavailable
from shared.settings import Settings
from worker import channel
from worker.crew import Crew
from worker.executor import CANCEL_SIGNAL, TIME_LIMIT_SIGNAL
from worker.executor_process import ExecutorProcess
from worker.held import Held
from worker.link import Link, News, Report
from worker.metrics import WorkerMetrics
from worker.pace import Pace
from worker.verdicts import Verdicts

log = logging.getLogger(__name__)

TICK = 0.05
"""Seconds between looks at time limits, leases and slow tasks."""
SLOW = 0.1
"""A task that runs for this long gets nothing put behind it, and what was behind it goes to somebody else."""
GATHER = 0.004
"""How long outcomes are gathered under load before they are reported together."""
ENOUGH = 96
"""Outcomes that are reported at once without gathering more."""


@dataclass(slots=True)
class Hooks:
    """What the engine asks of its surroundings."""

    hungry: Callable[[bool], None]
    ring: Callable[[], None]
    draining: Callable[[], None]


class Engine:
    """One worker's tasks, from claim to report."""

    def __init__(
        self, settings: Settings, link: Link, crew: Crew, verdicts: Verdicts, metrics: WorkerMetrics, hooks: Hooks
    ) -> None:
        self.settings = settings
        self.link = link
        self.crew = crew
        self.verdicts = verdicts
        self.metrics = metrics
        self.hooks = hooks
        self.pace = Pace()
        self.ready: deque[Held] = deque()
        self.selector = selectors.DefaultSelector()
        self.wake_read, self.wake_write = os.pipe()
        os.set_blocking(self.wake_read, False)
        os.set_blocking(self.wake_write, False)
        self.selector.register(self.wake_read, selectors.EVENT_READ)
        self.work_likely = True
        self.orders: deque[bytes] = deque()
        self.draining_until: float | None = None
        self.outage_since: float | None = None
        self.last_pass = time.monotonic()
        self._numbers = 0
        self._next_tick = 0.0
        self._next_extend = 0.0
        self._next_try = 0.0
        self._gathering_since: float | None = None

    # --- the loop ---

    def run(self) -> None:
        """Works until a drain is over."""
        while not self._finished():
            self.last_pass = time.monotonic()
            self._wait()
            self._read_news()
            self._obey()
            if time.monotonic() >= self._next_tick:
                self._tick()
            self._exchange()
            self._hand_out()
        self.crew.dismiss()

    def wake(self) -> None:
        """Ends the wait; may be called from any thread."""
        try:
            os.write(self.wake_write, b"w")
        except BlockingIOError:
            pass  # it is awake already

    def drain(self, grace: float) -> None:
        """Claims no more, lets what runs end within `grace` seconds, gives the rest back; again: a shorter grace."""
        until = time.monotonic() + grace
        self.draining_until = until if self.draining_until is None else min(until, self.draining_until)
        self.wake()

    def _finished(self) -> bool:
        if self.draining_until is None:
            return False
        idle = not self.ready and not any(executor.assigned for executor in self.crew)
        if idle and not self.link.reports and not self.link.releases:
            return True
        # Redis is away: what is not reported runs again when its lease is over.
        return idle and time.monotonic() > self.draining_until + 3

    def _wait(self) -> None:
        now = time.monotonic()
        patience = max(0.0, min(self._next_tick, self._next_extend) - now)
        if self.link.reports or self.link.releases or self._want():
            patience = min(patience, max(0.0, self._next_try - now))
            if self._gathering_since is not None:
                patience = min(patience, max(0.0, self._gathering_since + GATHER - now))
            if self._gathering_since is not None and patience > 0.0005 and self._all_busy():
                # Under load every outcome would wake us; sleeping on lets them gather.
                time.sleep(min(patience, 0.001))
                patience = 0.0
        for key, _ in self.selector.select(patience):
            if key.fd == self.wake_read:
                os.read(self.wake_read, 4096)

    def _all_busy(self) -> bool:
        return all(len(executor.assigned) > 1 for executor in self.crew if executor.ready)

    # --- news from executors ---

    def _read_news(self) -> None:
        for executor in self.crew:
            for name, *fields in executor.read():
                if name == channel.OUTCOME:
                    self._on_outcome(executor, channel.Outcome(*fields))
                elif name == channel.HELLO:
                    self.crew.greet(executor, fields[0])
                    self.verdicts.types = self.crew.types
                    self.work_likely = True
                else:
                    self._on_remark(executor, name, fields)
            if executor.hung_up:
                # It died, or a handler closed its pipes, which is as good as dying.
                executor.kill()
                self._next_tick = 0.0

    def _on_outcome(self, executor: ExecutorProcess, outcome: channel.Outcome) -> None:
        began_at = executor.began_at
        held = executor.finished(outcome.number)
        if held is None:
            return
        if outcome.kind == "cancelled" and not held.cancelled:
            # The order was for the task before this one.
            self._report(self.verdicts.interrupted(held, began_at, "the executor was stopped for another task"))
            return
        run_seconds = outcome.run_us / 1_000_000
        self.pace.learn(run_seconds)
        self.metrics.ended(held.type.decode(), outcome.kind, run_seconds, outcome.error_type)
        self._report(Report(held, outcome.kind, outcome.delay_us, outcome.record, outcome.error, outcome.payload))

    def _on_remark(self, executor: ExecutorProcess, name: str, fields: list[Any]) -> None:
        held = executor.assigned.get(fields[0])
        if held is None:
            return
        if name == channel.PROGRESS:
            held.progress = fields[1]
            self._next_extend = min(self._next_extend, time.monotonic() + 0.2)
        else:
            held.log(fields[1])

    def _report(self, report: Report) -> None:
        if self._gathering_since is None:
            self._gathering_since = time.monotonic()
        self.link.reports.append(report)

    # --- watching over what runs ---

    def _tick(self) -> None:
        now = time.monotonic()
        self._next_tick = now + (TICK if self._occupied() else 0.5)
        for executor in list(self.crew):
            if executor.is_dead():
                self._bury(executor)
                continue
            executor.flush()
            if executor.assigned:
                self._watch(executor, now)
            elif executor.retiring:
                executor.dismiss()
        self._drop_stale_leases(now)
        if self.draining_until is not None:
            self._drain(now)
        else:
            self.crew.retire_spent()
            for executor in self.crew.fill():
                self.selector.register(executor.news, selectors.EVENT_READ)

    def _occupied(self) -> bool:
        return bool(self.ready) or any(executor.assigned or not executor.ready for executor in self.crew)

    def _watch(self, executor: ExecutorProcess, now: float) -> None:
        """Keeps the running task to its limits."""
        held = executor.running()
        if held is None:
            return
        ran = now - executor.began_at
        if ran > SLOW:
            self._take_back(executor)
        if executor.stop_by is not None and now > executor.stop_by:
            executor.kill("cancelled" if held.cancelled else "time limit")
        elif ran > held.limit and not executor.limit_signalled:
            executor.limit_signalled = True
            executor.stop_by = now + self.settings.kill_grace
            executor.signal(TIME_LIMIT_SIGNAL)
        self._watch_memory(executor)

    def _watch_memory(self, executor: ExecutorProcess) -> None:
        limit = self.settings.executor_max_memory_bytes
        if limit and executor.memory_bytes() > limit:
            executor.kill(f"memory: it used more than {limit >> 20} MiB (EXECUTOR_MAX_MEMORY_BYTES) and was killed")

    def _take_back(self, executor: ExecutorProcess) -> None:
        """What waits behind a slow task goes to an idle executor here, or back to its queue for anybody."""
        for held in executor.take_back():
            self._return(held)

    def _return(self, held: Held) -> None:
        if self.draining_until is None and any(self._idle(executor) for executor in self.crew):
            self.ready.append(held)
        else:
            self.metrics.given_back += 1
            self.link.releases.append(held)

    def _drop_stale_leases(self, now: float) -> None:
        """Stops acting before a lease that could not be extended can end elsewhere."""
        trusted = now + 0.1 * self.link.lease
        for held in [each for each in self.ready if each.lease_until < trusted]:
            self.ready.remove(held)
            self.link.releases.append(held)
        for executor in self.crew:
            if any(held.lease_until < trusted for held in executor.assigned.values()):
                self.link.releases += executor.take_back()
                if executor.running() is not None:
                    executor.kill("lease: it could not be extended in time")

    # --- the death of an executor ---

    def _bury(self, executor: ExecutorProcess) -> None:
        """An executor died: what it had finished counts, what it had not begun goes on elsewhere."""
        for name, *fields in executor.read():
            if name == channel.OUTCOME:
                self._on_outcome(executor, channel.Outcome(*fields))
        for held in executor.take_back():
            self._return(held)
        for held in executor.assigned.values():
            self._on_death(executor, held)
        executor.assigned.clear()
        self.selector.unregister(executor.news)
        executor.bury()
        self.crew.lost(executor)

    def _on_death(self, executor: ExecutorProcess, held: Held) -> None:
        because = executor.killed_because or ""
        seconds = time.monotonic() - executor.began_at
        report = self._obituary(executor, held, because)
        self.metrics.ended(held.type.decode(), report.kind, seconds, because.split(":")[0] or "ExecutorCrashed")
        self._report(report)

    def _obituary(self, executor: ExecutorProcess, held: Held, because: str) -> Report:
        began_at = executor.began_at
        if because == "time limit" and time.monotonic() - began_at >= held.limit:
            return self.verdicts.timed_out(held, began_at)
        if because == "cancelled" and held.cancelled:
            return self.verdicts.cancelled(held, began_at)
        if because and not because.startswith("memory"):
            return self.verdicts.interrupted(held, began_at, f"its executor was stopped ({because})")
        self.metrics.crashes += 1
        self.metrics.errors["executor_crash"] += 1
        why = because.removeprefix("memory: ") or executor.cause_of_death()
        log.warning("task %s: %s", held.id.decode(), why)
        return self.verdicts.crashed(held, began_at, why)

    # --- orders ---

    def _obey(self) -> None:
        while self.orders:
            verb, _, argument = self.orders.popleft().partition(b" ")
            if verb == b"cancel":
                self._cancel(argument)
            elif verb == b"work":
                self.work_likely = True
                if not self._room():
                    self.hooks.ring()  # the bell woke the wrong one: it rings for the next

    def _cancel(self, task_id: bytes) -> None:
        """Stops a task of ours that somebody cancelled. What is not begun is given back, which ends it."""
        for held in [each for each in self.ready if each.id == task_id]:
            self.ready.remove(held)
            self.link.releases.append(held)
        for executor in self.crew:
            if any(held.id == task_id for held in executor.assigned.values()):
                self._cancel_at(executor, task_id)

    def _cancel_at(self, executor: ExecutorProcess, task_id: bytes) -> None:
        for held in executor.take_back():
            if held.id == task_id:
                self.link.releases.append(held)
            else:
                self.ready.appendleft(held)
        running = executor.running()
        if running is not None and running.id == task_id and not running.cancelled:
            running.cancelled = True
            executor.stop_by = time.monotonic() + self.settings.kill_grace
            executor.signal(CANCEL_SIGNAL)

    # --- Redis ---

    def _exchange(self) -> None:
        """Talks to Redis if there is a reason to."""
        now = time.monotonic()
        if now < self._next_try:
            return
        extending = self._to_extend() if now >= self._next_extend else []
        if now >= self._next_extend:
            self._next_extend = now + self.link.lease / 3
        want = self._want()
        if not (extending or want or self.link.releases or self._report_due(now)):
            return
        try:
            news = self.link.exchange(want, extending)
        except (StoreUnavailable, ResponseError) as error:
            self._on_outage(now, error)
            return
        self._on_contact(now)
        self._on_exchanged(news, want)

    def _to_extend(self) -> list[Held]:
        """Everything held; what runs is noted as begun, which tells a crash from bad luck if we die."""
        for executor in self.crew:
            running = executor.running()
            if running is not None:
                running.noted = True
        return [*self.ready, *(held for executor in self.crew for held in executor.assigned.values())]

    def _report_due(self, now: float) -> bool:
        if not self.link.reports:
            return False
        gathered = self._gathering_since is None or now - self._gathering_since >= GATHER
        return gathered or len(self.link.reports) >= ENOUGH or not self._all_busy()

    def _want(self) -> int:
        """How many tasks to claim now."""
        if not self.work_likely or self.draining_until is not None:
            return 0
        room = self._room()
        # Under load a claim is worth its round trip only when it brings a good part of what fits.
        if room and self._all_busy() and room < self.pace.ahead() * len(self.crew.members) // 3:
            return 0
        return room

    def _room(self) -> int:
        ahead = self.pace.ahead()
        free = sum(max(0, self._capacity(executor, ahead)) for executor in self.crew)
        return max(0, free - len(self.ready))

    def _capacity(self, executor: ExecutorProcess, ahead: int) -> int:
        if not executor.ready or executor.retiring:
            return 0
        if not executor.assigned:
            return ahead
        if time.monotonic() - executor.began_at > SLOW or next(iter(executor.assigned.values())).suspect:
            return 0
        return ahead - len(executor.assigned)

    def _idle(self, executor: ExecutorProcess) -> bool:
        return executor.ready and not executor.retiring and not executor.assigned

    def _on_outage(self, now: float, error: Exception) -> None:
        self._next_try = now + 0.25
        self.metrics.errors["redis"] += 1
        if self.outage_since is None:
            self.outage_since = now
            log.error("%s; running tasks go on as long as their leases hold", error)

    def _on_contact(self, now: float) -> None:
        if self.outage_since is not None:
            log.info("Redis is back after %.1f s", now - self.outage_since)
            self.outage_since = None
        self._gathering_since = time.monotonic() if self.link.reports else None

    def _on_exchanged(self, news: News, want: int) -> None:
        for held in news.claimed:
            self._numbers = self._numbers % 0xFFFFFFFF + 1
            held.number = self._numbers
            held.limit = self._limit(held)
            if held.enqueued_us:
                started_us = int(time.monotonic() * 1_000_000) + held.clock_offset_us
                self.metrics.waits.observe(max(0, started_us - held.enqueued_us) / 1_000_000)
            self.ready.append(held)
        for task_id in news.unreadable:
            self.metrics.errors["corrupt_record"] += 1
            log.error("task %s: its record cannot be read; it was set aside", task_id)
        for held in news.lost:
            self._on_lost(held)
        for held in news.cancelled:
            self._cancel(held.id)
        for held in news.refused:
            self.metrics.leases_lost += 1
            log.warning("task %s: its lease was lost, so its outcome here was refused", held.id.decode())
        if want:
            self.work_likely = len(news.claimed) >= want
            self.hooks.hungry(not self.work_likely)

    def _limit(self, held: Held) -> float:
        """The time limit: the task's own, else its type's, else the general one."""
        if held.timeout:
            return float(held.timeout)
        known = self.crew.types.get(held.type.decode())
        return known.timeout if known and known.timeout else self.settings.task_timeout

    def _on_lost(self, held: Held) -> None:
        """Somebody else has the task now: it must not go on here."""
        self.metrics.leases_lost += 1
        if held in self.ready:
            self.ready.remove(held)
            return
        for executor in self.crew:
            if executor.assigned.get(held.number) is held:
                for other in executor.take_back():
                    if other is not held:
                        self.ready.appendleft(other)
                if executor.running() is held:
                    log.warning("task %s: its lease was lost, so it is stopped here", held.id.decode())
                    executor.kill("lease: it was lost")

    # --- handing out ---

    def _hand_out(self) -> None:
        """Gives ready tasks to executors, the emptiest first; a suspect only to an idle one, alone."""
        if not self.ready:
            return
        if self.draining_until is not None:
            self.link.releases += self.ready
            self.ready.clear()
            return
        ahead = self.pace.ahead()
        for executor in sorted(self.crew, key=lambda each: len(each.assigned)):
            share = self._share(executor, self._capacity(executor, ahead))
            if share:
                executor.assign(share)
        self._next_tick = min(self._next_tick, time.monotonic() + TICK)

    def _share(self, executor: ExecutorProcess, most: int) -> list[Held]:
        share: list[Held] = []
        for _ in range(len(self.ready)):
            if len(share) >= most:
                break
            held = self.ready.popleft()
            if not held.suspect:
                share.append(held)
            elif share or not self._idle(executor):
                self.ready.append(held)
            elif self._may_start(held):
                return [held]
        return share

    def _may_start(self, suspect: Held) -> bool:
        try:
            return self.link.note_begun(suspect)
        except StoreUnavailable:
            self.link.releases.append(suspect)
            return False

    # --- draining ---

    def _drain(self, now: float) -> None:
        """Gives back what has not begun; when the grace is over, also what has."""
        assert self.draining_until is not None
        self.hooks.draining()
        for executor in self.crew:
            self.link.releases += executor.take_back()
            if executor.assigned and now >= self.draining_until:
                executor.kill("the worker stops")


def forward_signals(engine: Engine, grace: float) -> None:
    """SIGTERM and SIGINT drain; a second one stops at once, and every task is given back."""

    def on_stop(signum: int, frame: object) -> None:
        again = engine.draining_until is not None
        engine.drain(0.0 if again else grace)

    signal.signal(signal.SIGTERM, on_stop)
    signal.signal(signal.SIGINT, on_stop)
    signal.signal(signal.SIGCHLD, lambda signum, frame: None)
    signal.set_wakeup_fd(engine.wake_write, warn_on_full_buffer=False)
