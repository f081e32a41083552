"""The worker's loop: claim tasks, assign them to executors, report how they ended.

One thread does all of it, so a task is in one place at a time: `ready` of a lane (claimed, not assigned), an executor's
`assigned`, or the session's `reports` and `releases`. Every pass reads the executors' events, lets `ExecutorMonitor`
check limits and leases now and then, calls Redis when there is a reason to, and assigns what is ready.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import threading
import time
from collections.abc import Callable

from redis.exceptions import ResponseError

from taskqueue.shared.config.settings import Settings
from taskqueue.shared.config.signals import RELOAD
from taskqueue.shared.domain.task import Outcome
from taskqueue.shared.errors import StoreUnavailable
from taskqueue.shared.failpoints import failpoint
from taskqueue.worker.engine.claimed_task import ClaimedTask
from taskqueue.worker.engine.failure_log import FailureLog
from taskqueue.worker.engine.lane import Lane
from taskqueue.worker.engine.liveness import Liveness
from taskqueue.worker.engine.notifications import COMMAND, DIRECT_DISPATCH, Notifications
from taskqueue.worker.engine.redis_session import RedisSession, Report, SyncResult
from taskqueue.worker.executors.monitor import ExecutorMonitor
from taskqueue.worker.executors.pool import ExecutorPool
from taskqueue.worker.metrics import WorkerMetrics

log = logging.getLogger(__name__)

TICK = 0.05
"""Seconds between checks of time limits, leases and slow tasks while a task runs."""
IDLE_TICK = 0.5
GATHER = 0.004
"""Seconds for which outcomes are collected under load before they are reported together."""
ENOUGH = 96
"""Number of outcomes that are reported at once, without collecting more."""
SHORTEST_WAIT = 0.02
"""Seconds between claims of a worker that waits for a rate limit."""
PAUSE = 0.25
"""Seconds until the next try after Redis did not answer, or failed."""
REPORT_GRACE = 3.0
"""Seconds after a drain for which a worker tries to reach a Redis that is away."""


class Engine:
    """One worker's tasks, from claim to report."""

    def __init__(
        self,
        settings: Settings,
        session: RedisSession,
        pool: ExecutorPool,
        monitor: ExecutorMonitor,
        metrics: WorkerMetrics,
        notifications: Notifications,
        selector: selectors.BaseSelector,
        heartbeat_due: threading.Event,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`selector` is the one of the pool and the notifications; `heartbeat_due` asks for a heartbeat at once."""
        self.settings = settings
        self.session = session
        self.pool = pool
        self.monitor = monitor
        self.lanes = monitor.lanes
        self.metrics = metrics
        self.failure_log = FailureLog(monotonic)
        self.notifications = notifications
        self.selector = selector
        self.heartbeat_due = heartbeat_due
        self.monotonic = monotonic
        self.types_known = False
        self.draining_since = 0.0
        self.draining_until: float | None = None
        self.outage_since: float | None = None
        self.liveness = Liveness(session.lease, monotonic)
        self._numbers = 0
        self._next_tick = 0.0
        self._next_extend = 0.0
        self._next_try = 0.0
        self._wake_read, self.wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self.wake_write, False)
        self.selector.register(self._wake_read, selectors.EVENT_READ)

    # --- the loop ---

    def run(self) -> None:
        """Runs until a drain is complete."""
        while not self.finished():
            self.step()
        self.failure_log.close()

    def step(self) -> None:
        """Makes one pass: waits for an event, and does what is due."""
        self.liveness.passed_at = self.monotonic()
        self._wait()
        self._handle_notifications()
        self.monitor.read_events()
        if self.monitor.check_due or self.monotonic() >= self._next_tick:
            self._tick()
        self._sync()
        self._hand_out()
        if self.outage_since is None:
            awaiting = [lane.suffix for lane in self.lanes if lane.awaiting_work]
            self.notifications.listen(awaiting, self.lanes.serial.slots.full)
            self._handle_notifications()

    def wake(self) -> None:
        """Wakes the loop; may be called from any thread."""
        with contextlib.suppress(BlockingIOError):  # it is awake already
            os.write(self.wake_write, b"w")

    def drain(self, grace: float) -> None:
        """Claims no more, lets running tasks end within `grace` seconds, returns the rest; again: a shorter grace."""
        until = self.monotonic() + grace
        if self.draining_until is None:
            self.draining_since = self.monotonic()
        self.draining_until = until if self.draining_until is None else min(until, self.draining_until)
        self.monitor.check_soon()
        self.wake()

    def reload(self) -> None:
        """Loads the handlers anew; running tasks get a short grace. May be called from a signal handler."""
        self.pool.reload()
        self._next_tick = 0.0
        self.wake()

    def on_types_published(self) -> None:
        """Lets the worker claim: the gateway knows its task types. May be called from any thread."""
        if not self.types_known:
            self.types_known = True
            self.wake()

    def finished(self) -> bool:
        """Returns whether a drain is complete, or Redis has been away for too long after it."""
        held = self.lanes.ready() or any(executor.assigned for executor in self.pool)
        if self.draining_until is None or held:
            return False
        unanswered = any(lane.claims.unanswered for lane in self.lanes)
        if not self.session.reports and not self.session.releases and not unanswered:
            return True
        # With Redis unreachable, unreported or unseen tasks run again when their leases end.
        all_reported = not self.session.reports and not self.session.releases
        return self.monotonic() > (self.draining_since if all_reported else self.draining_until) + REPORT_GRACE

    def _wait(self) -> None:
        """Waits until an event arrives or something is due."""
        now = self.monotonic()
        patience = self._next_due(now) - now
        if self.session.reports or self.session.releases or self._claim_sizes(now):
            due = self._next_try - now
            busy = self._all_busy()
            if self.session.reports and busy:
                due = max(due, self.session.gathering_since + GATHER - now)
            patience = min(patience, due)
            if patience > 0.0005 and busy:
                # Under load every outcome would wake the loop; sleeping on collects them.
                time.sleep(min(patience, 0.001))
                patience = 0.0
        if [executor for executor in self.pool if not executor.flush()]:
            patience = min(patience, 0.002)  # a pipe is full: large data continues as soon as there is room
        for key, _ in self.selector.select(max(0.0, patience)):
            if key.fd == self._wake_read:
                os.read(self._wake_read, 4096)
            elif key.data:
                key.data()

    def _next_due(self, now: float) -> float:
        """Returns when the next pass is due without an event."""
        if self.monitor.check_due:
            return now
        due = min(self._next_tick, self._next_extend)
        for lane in self.lanes:
            if now < lane.next_token < due and self.types_known and lane.free():
                due = lane.next_token
        return due

    def _tick(self) -> None:
        now = self.monotonic()
        ready = self.lanes.ready()
        busy = bool(ready) or any(executor.assigned or not executor.ready for executor in self.pool)
        self._next_tick = now + (TICK if busy else IDLE_TICK)
        if self.pool.ready:
            self.liveness.manned_at = now
        else:
            self.liveness.talked_at = now
        self.monitor.check(now)
        self.failure_log.summarize(now)
        if self.draining_until is None:
            self.pool.retire_spent()
            self.pool.spawn_missing()
        else:
            if self.pool.spawning:
                self.pool.spawning = False
                self.heartbeat_due.set()  # publishes that it drains
            self.monitor.drain(self.draining_since, now >= self.draining_until)
        if self.pool.watchdog:
            self.pool.watchdog.beat(now, self.pool, self.lanes.ready())

    # --- notifications of Redis ---

    def _handle_notifications(self) -> None:
        while self.notifications.received:
            kind, message = self.notifications.received.popleft()
            if kind == DIRECT_DISPATCH:
                self.on_direct_dispatch(message or b"")
            elif kind == COMMAND:
                self.on_command(message)
            else:
                self.on_wakeup(message)

    def on_wakeup(self, message: bytes | None) -> None:
        """Handles a wake-up for a lane ("" for any), or the time-out of waiting for one."""
        name = (message or b"").decode(errors="replace")
        if name in self.lanes.serial.slots.full:
            self._pass_on(name)  # this worker skips that wake-up list until a slot is free
            return
        lanes = [lane for lane in self.lanes if not name or lane.serves(name)]
        if message is None and (waiting := [lane for lane in lanes if lane.awaiting_work]):
            lanes = [min(waiting, key=lambda each: each.claims.asked_at)]  # one after the other: half of the commands
        may_claim = self.types_known and self.draining_until is None
        free = [lane for lane in lanes if may_claim and lane.free()]
        for lane in lanes:
            lane.work_likely = True
            lane.claims.queues.touch(name.removesuffix("+"))
            # A busy lane stops listening until it has capacity, or this worker would receive its own wake-up.
            lane.awaiting_work = lane.awaiting_work and lane in free
        if not free:
            self._pass_on(name)

    def _pass_on(self, name: str) -> None:
        self.session.notify_workers(name, known=self.lanes.serial.claims.takes(name))

    def on_direct_dispatch(self, message: bytes) -> None:
        """Takes the tasks of a direct dispatch: a submission answered the parked claim."""
        failpoint("worker.dispatched")
        self._apply(self.session.accept(message, [lane.claims for lane in self.lanes]))
        self.lanes.serial.slots.update()
        self._hand_out()

    def on_command(self, order: bytes | None) -> None:
        """Handles a command: stop a task, drain, or look for work."""
        verb, _, argument = (order or b"").partition(b" ")
        if verb == b"cancel":
            self.monitor.cancel(argument)
        elif verb == b"drain":
            self.drain(self.settings.drain_grace)
        elif verb == b"look":
            for lane in self.lanes:
                lane.work_likely = True  # there is work that only some workers can do, or a new queue
                lane.claims.queues.look_soon()

    # --- Redis ---

    def _sync(self) -> None:
        """Calls Redis if there is a reason to."""
        now = self.monotonic()
        if now < self._next_try:
            return
        extending = self._to_extend() if now >= self._next_extend or self.monitor.progress_came else []
        sizes = self._claim_sizes(now)
        if not sizes and not (extending or self.session.releases or self._report_due(now)):
            return
        for lane in self.lanes:
            if lane not in sizes and lane.awaiting_work and not lane.claims.parked and (free := lane.free()):
                sizes[lane] = free  # a new parked claim, which costs no round trip of its own
        self.liveness.talked_at = now
        failpoint("worker.before-sync")
        try:
            events = self.session.sync([lane.order(size) for lane, size in sizes.items()], extending)
            failpoint("worker.after-sync")
        except StoreUnavailable as error:
            self._on_outage(now, error)
            return
        except ResponseError as error:
            self._on_refusal(now, error)
            return
        self._on_answer(now)
        self._apply(events)
        for lane, size in sizes.items():
            lane.on_claimed(now, size, SHORTEST_WAIT)

    def _to_extend(self) -> list[ClaimedTask]:
        """Returns all held tasks; running ones are marked as begun, so that a crash is charged to them only."""
        self._next_extend = self.monotonic() + self.session.lease / 3
        self.monitor.progress_came = False
        for executor in self.pool:
            for running in executor.begun():
                running.noted = True
        return [*self.lanes.ready(), *(claimed for executor in self.pool for claimed in executor.assigned.values())]

    def _report_due(self, now: float) -> bool:
        if not self.session.reports:
            return False
        gathered = now - self.session.gathering_since >= GATHER
        return gathered or len(self.session.reports) >= ENOUGH or not self._all_busy()

    def _all_busy(self) -> bool:
        return all(lane.all_busy() for lane in self.lanes if lane.executors)

    def _on_outage(self, now: float, error: Exception) -> None:
        self._next_try = now + PAUSE
        self.metrics.errors["redis"] += 1
        if self.outage_since is None:
            self.outage_since = now
            log.error("%s; running tasks continue while their leases hold", error)

    def _on_refusal(self, now: float, error: ResponseError) -> None:
        """Handles a failed step of a working Redis: likely caused by a corrupt record, which must not delay the rest.

        Nor may it cost the leases of running tasks, whose answers came with the error.
        """
        self._next_try = now + PAUSE
        self.metrics.errors["script"] += 1
        log.error("a step failed in Redis: %s; sending reports one by one", error)
        events = SyncResult()
        try:
            self.session.report_one_by_one(events)
            self.session.extend(self._to_extend(), events)
        except StoreUnavailable as away:
            self._on_outage(now, away)
        self._apply(events)

    def _on_answer(self, now: float) -> None:
        if self.outage_since is not None:
            log.info("Redis reachable again after %.1f s", now - self.outage_since)
            self.outage_since = None

    def _apply(self, events: SyncResult) -> None:
        for claimed in events.claimed:
            self._receive(claimed)
        for task_id in events.unreadable:
            self.metrics.errors["corrupt_record"] += 1
            log.error("task %s: corrupt record, moved to the dead letters", task_id)
        for claimed in events.lost:
            self.monitor.abandon(claimed)
        for claimed in events.cancelled:
            self.monitor.cancel(claimed.id)
        for report in events.written:
            self._on_written(report)
        for claimed in events.refused:
            self.metrics.leases_lost += claimed.lose()
            line = "task %s: lease lost, outcome refused"
            log.warning(line, claimed.id.decode(), extra=claimed.log_fields)
        for claimed in events.corrupt:
            line = "task %s: outcome not stored, record corrupt"
            log.error(line, claimed.id.decode(), extra=claimed.log_fields)

    def _on_written(self, report: Report) -> None:
        self.metrics.ended(report.claimed.name, report.state, report.run_us / 1_000_000, report.error_type)
        self.failure_log.add(report)
        if report.outcome == Outcome.REFUSED and not report.version:
            self.heartbeat_due.set()  # the published types differ from those of its executors

    def _receive(self, claimed: ClaimedTask) -> None:
        self._numbers = self._numbers % 0xFFFFFFFF + 1
        claimed.number = self._numbers
        claimed.limit = self._limit(claimed)
        if claimed.enqueued_us:
            started_us = int(self.monotonic() * 1_000_000) + claimed.clock_offset_us
            self.metrics.waits.observe(max(0, started_us - claimed.enqueued_us) / 1_000_000)
        alone = claimed.crashed_before and claimed.company(self.settings.executor_slots) == 1
        claimed.concurrent = self.pool.is_concurrent(claimed.name) and not alone
        self.pool.concurrent_wanted = self.pool.concurrent_wanted or claimed.concurrent
        if not self.lanes.add(claimed):
            self.session.releases.append(claimed)  # it returns to the lane of its type

    def _limit(self, claimed: ClaimedTask) -> float:
        """Returns the time limit in seconds: the task's own, else its type's, else the general one."""
        if limit := claimed.own_limit:
            return limit
        if claimed.timeout:
            log.error(
                "task %s: time limit %r is not a number, using the general one", claimed.id.decode(), claimed.timeout
            )
        known = self.pool.types.get(claimed.name)
        return known.timeout if known and known.timeout else self.settings.task_timeout

    # --- how much to claim, and assigning it ---

    def _claim_sizes(self, now: float) -> dict[Lane, int]:
        """Returns how many tasks to claim now for each lane that has a reason to claim."""
        draining = self.draining_until is not None
        if not self.types_known and not draining:
            return {}
        sizes = {lane: lane.claim_size(draining, now) for lane in self.lanes}
        return {lane: size for lane, size in sizes.items() if size is not None}

    def _hand_out(self) -> None:
        """Assigns ready tasks to executors."""
        if not any(lane.ready for lane in self.lanes):
            return
        if self.draining_until is not None:
            self.session.releases += self.lanes.ready()
            for lane in self.lanes:
                lane.ready.clear()
            return
        for lane in self.lanes:
            if lane.ready:
                lane.hand_out(self._note_begun)
        failpoint("worker.handed-out")
        self._next_tick = min(self._next_tick, self.monotonic() + TICK)

    def _note_begun(self, claimed: ClaimedTask) -> bool:
        """Records the start of a suspect; returns whether it may start.

        Without Redis it waits: time-outs would delay the checks of leases.
        """
        if self.monotonic() < self._next_try:
            self.lanes.of(claimed).ready.append(claimed)
            return False
        try:
            may = self.session.note_begun(claimed)
            failpoint("worker.begun-noted")
            return may
        except StoreUnavailable as error:
            self._on_outage(self.monotonic(), error)
        except ResponseError as error:
            self._next_try = self.monotonic() + PAUSE
            log.error("task %s: its start cannot be recorded: %s", claimed.id.decode(), error)
        self.session.releases.append(claimed)
        return False


def forward_signals(engine: Engine, grace: float) -> None:
    """Makes SIGTERM and SIGINT drain, and RELOAD load the handlers anew.

    A second SIGTERM or SIGINT stops at once, and every task is returned.
    """

    def on_stop(signum: int, frame: object) -> None:
        again = engine.draining_until is not None
        engine.drain(0.0 if again else grace)

    signal.signal(signal.SIGTERM, on_stop)
    signal.signal(signal.SIGINT, on_stop)
    signal.signal(RELOAD, lambda signum, frame: engine.reload())
    signal.signal(signal.SIGCHLD, lambda signum, frame: engine.monitor.check_soon())
    signal.set_wakeup_fd(engine.wake_write, warn_on_full_buffer=False)
