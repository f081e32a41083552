"""The worker's loop: claim tasks, assign them to executors, report their outcomes.

One thread does all of it, so a task is in one place at a time: `ready` of a lane (claimed, not assigned), an executor's
`assigned`, or the `reports` and `releases` of the session that claimed it. Every pass reads the executors' events,
lets `ExecutorMonitor` check limits and leases now and then, calls Redis when there is a reason to, and assigns ready
tasks.

A worker has a link to each store. An unreachable one delays the loop once, for one time-out; from then on a
thread pings it until it answers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import time
from collections.abc import Callable, Sequence

from redis.exceptions import ResponseError

from firmq.shared.config.settings import Settings
from firmq.shared.config.signals import RELOAD
from firmq.shared.domain.task import Outcome
from firmq.shared.errors import StoreUnavailable
from firmq.shared.failpoints import failpoint
from firmq.worker.engine.claimed_task import ClaimedTask
from firmq.worker.engine.failure_log import FailureLog
from firmq.worker.engine.lane import Lane
from firmq.worker.engine.link import ClaimOrder, Due, StoreLink
from firmq.worker.engine.liveness import Liveness
from firmq.worker.engine.notifications import COMMAND, DIRECT_DISPATCH
from firmq.worker.engine.redis_session import Report, SyncResult
from firmq.worker.executors import ipc
from firmq.worker.executors.monitor import ExecutorMonitor
from firmq.worker.executors.pool import ExecutorPool
from firmq.worker.metrics import WorkerMetrics

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
"""Seconds after a drain for which a worker tries to reach an unreachable Redis."""


class Engine:
    """One worker's tasks, from claim to report."""

    def __init__(
        self,
        settings: Settings,
        links: Sequence[StoreLink],
        pool: ExecutorPool,
        monitor: ExecutorMonitor,
        metrics: WorkerMetrics,
        selector: selectors.BaseSelector,
        heartbeat_due: Due,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`selector` is the one of the pool and the links; `heartbeat_due` requests a heartbeat at once."""
        self.settings = settings
        self.links = links
        self.claim_order = ClaimOrder(links)
        self.pool = pool
        self.monitor = monitor
        self.lanes = monitor.lanes
        self.metrics = metrics
        self.failure_log = FailureLog(monotonic)
        self.selector = selector
        self.heartbeat_due = heartbeat_due
        self.monotonic = monotonic
        self.draining_since = 0.0
        self.draining_until: float | None = None
        self.liveness = Liveness(settings.lease_time, monotonic)
        self._numbers = 0
        self._next_tick = 0.0
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
        """Makes one pass: waits for an event, then handles all that is due."""
        self.liveness.passed_at = self.monotonic()
        self._wait()
        self._handle_notifications()
        self.monitor.read_events()
        if self.monitor.check_due or self.monotonic() >= self._next_tick:
            self._tick()
        self._sync()
        self._hand_out()
        for link in self.links:
            if link.outage_since is None:
                awaiting = [lane.suffix for lane in self.lanes if link.of(lane).awaiting_work]
                link.notifications.listen(awaiting, self.lanes.serial.slots.full)
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
        """Reloads the handlers; running tasks get a short grace. May be called from a signal handler."""
        self.pool.reload()
        self._next_tick = 0.0
        self.wake()

    def on_types_published(self, link: StoreLink) -> None:
        """Lets the worker claim there: the gateway knows its task types. May be called from any thread."""
        if not link.types_known:
            link.types_known = True
            self.wake()

    @property
    def reaches_redis(self) -> bool:
        """Returns whether some store answers, as of the worker's last calls."""
        return any(link.outage_since is None for link in self.links)

    def close(self) -> None:
        """Closes the connections for notifications."""
        for link in self.links:
            link.notifications.close()

    def finished(self) -> bool:
        """Returns whether a drain is complete, or Redis has been unreachable for too long after it."""
        held = self.lanes.ready() or any(executor.assigned for executor in self.pool)
        if self.draining_until is None or held:
            return False
        all_reported = not any(link.session.reports or link.session.releases for link in self.links)
        if all_reported and not any(link.unanswered for link in self.links):
            return True
        # With Redis unreachable, unreported or unseen tasks run again when their leases end.
        return self.monotonic() > (self.draining_since if all_reported else self.draining_until) + REPORT_GRACE

    def _wait(self) -> None:
        """Waits until an event arrives or something is due."""
        now = self.monotonic()
        patience = self._next_due(now) - now
        busy = self._all_busy()
        wanted = [self._next_call(link, now, busy) for link in self.links if self._wants_a_call(link, now)]
        if wanted:
            patience = min(patience, *wanted)
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

    def _wants_a_call(self, link: StoreLink, now: float) -> bool:
        session = link.session
        return not link.probed and bool(session.reports or session.releases or self._claim_sizes(link, now))

    def _next_call(self, link: StoreLink, now: float, busy: bool) -> float:
        """Returns in how many seconds a link is to be used that has a reason for it."""
        due = link.next_try - now
        return max(due, link.session.gathering_since + GATHER - now) if link.session.reports and busy else due

    def _next_due(self, now: float) -> float:
        """Returns when the next pass is due without an event."""
        if self.monitor.check_due:
            return now
        due = min([self._next_tick, *(link.next_extend for link in self.links if not link.probed)])
        for link in self.links:
            for lane in self.lanes:
                if now < link.of(lane).next_token < due and link.types_known and lane.free():
                    due = link.of(lane).next_token
        return due

    def _tick(self) -> None:
        now = self.monotonic()
        ready = self.lanes.ready()
        busy = bool(ready) or any(executor.assigned or not executor.ready for executor in self.pool)
        self._next_tick = now + (TICK if busy else IDLE_TICK)
        concurrent = self.pool.concurrent_wanted and self.settings.concurrent_executors > 0
        wanted = {ipc.SERIAL, ipc.CONCURRENT} if concurrent else {ipc.SERIAL}
        if wanted <= {executor.kind for executor in self.pool if executor.ready}:
            self.liveness.manned_at = now
        if not self.pool.ready:
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
        for link in self.links:
            received = link.notifications.received
            while received:
                kind, message = received.popleft()
                if kind == DIRECT_DISPATCH:
                    self.on_direct_dispatch(link, message or b"")
                elif kind == COMMAND:
                    self.on_command(link, message)
                else:
                    self.on_wakeup(link, message)

    def on_wakeup(self, link: StoreLink, message: bytes | None) -> None:
        """Handles a wake-up for a lane ("" for any), or the time-out of waiting for one."""
        name = (message or b"").decode(errors="replace")
        if name in self.lanes.serial.slots.full:
            self._pass_on(link, name)  # this worker skips that wake-up list until a slot is free
            return
        lanes = [lane for lane in self.lanes if not name or lane.serves(name)]
        if message is None and (waiting := [lane for lane in lanes if link.of(lane).awaiting_work]):
            lanes = [min(waiting, key=lambda each: link.of(each).asked_at)]  # one after the other: half of the commands
        may_claim = link.types_known and self.draining_until is None
        free = [lane for lane in lanes if may_claim and lane.free()]
        for lane in lanes:
            claims = link.of(lane)
            claims.work_likely = True
            claims.queues.touch(name.removesuffix("+"))
            # A busy lane stops listening until it has capacity, or this worker would receive its own wake-up.
            claims.awaiting_work = claims.awaiting_work and lane in free
        if not free:
            self._pass_on(link, name)

    def _pass_on(self, link: StoreLink, name: str) -> None:
        link.session.notify_workers(name, known=link.of(self.lanes.serial).takes(name))

    def on_direct_dispatch(self, link: StoreLink, message: bytes) -> None:
        """Takes the tasks of a direct dispatch: a submission answered the parked claim."""
        failpoint("worker.dispatched")
        self._apply(link.session.accept(message, list(link.claims.values())))
        self.lanes.serial.slots.update()
        self._hand_out()

    def on_command(self, link: StoreLink, order: bytes | None) -> None:
        """Handles a command: stop a task, drain, or look for work."""
        verb, _, argument = (order or b"").partition(b" ")
        if verb == b"cancel":
            self.monitor.cancel(argument)
        elif verb == b"drain":
            self.drain(self.settings.drain_grace)
        elif verb == b"look":
            for claims in link.claims.values():
                claims.work_likely = True  # there is work that only some workers can do, or a new queue
                claims.queues.look_soon()

    # --- Redis ---

    def _sync(self) -> None:
        """Calls the stores that there is a reason to call."""
        now = self.monotonic()
        links = [link for link in self.claim_order if not link.probed and now >= link.next_try]
        progress = bool(links) and self.monitor.progress_came
        self.monitor.progress_came = self.monitor.progress_came and not links
        for link in links:
            self._sync_with(link, now, progress)

    def _sync_with(self, link: StoreLink, now: float, progress: bool) -> None:
        extending = self._to_extend(link) if now >= link.next_extend or progress else []
        sizes = self._claim_sizes(link, now)
        if not sizes and not (extending or link.session.releases or self._report_due(link, now)):
            return
        for lane in self.lanes:
            claims = link.of(lane)
            if lane not in sizes and claims.awaiting_work and not claims.parked and (free := lane.free()):
                sizes[lane] = free  # a new parked claim, which costs no round trip of its own
        self.liveness.talked_at = now
        failpoint("worker.before-sync")
        try:
            orders = [lane.order(link.of(lane), size) for lane, size in sizes.items()]
            events = link.session.sync(orders, extending)
            failpoint("worker.after-sync")
        except StoreUnavailable as error:
            self._on_outage(link, now, error)
            return
        except ResponseError as error:
            self._on_refusal(link, now, error)
            return
        self._on_answer(link, now)
        link.on_claimed(events.claimed, sum(sizes.values()))
        self._apply(events)
        for lane, size in sizes.items():
            lane.on_claimed(link.of(lane), now, size, SHORTEST_WAIT)

    def _to_extend(self, link: StoreLink) -> list[ClaimedTask]:
        """Returns the held tasks of a store; running ones are marked as begun: a crash is charged to them only."""
        link.next_extend = self.monotonic() + link.session.lease / 3
        for executor in self.pool:
            for running in executor.begun():
                running.noted = True
        held = [*self.lanes.ready(), *(claimed for executor in self.pool for claimed in executor.assigned.values())]
        return [claimed for claimed in held if claimed.session is link.session]

    def _report_due(self, link: StoreLink, now: float) -> bool:
        session = link.session
        if not session.reports:
            return False
        gathered = now - session.gathering_since >= GATHER
        return gathered or len(session.reports) >= ENOUGH or not self._all_busy()

    def _all_busy(self) -> bool:
        return all(lane.all_busy() for lane in self.lanes if lane.executors)

    def _on_outage(self, link: StoreLink, now: float, error: Exception) -> None:
        link.next_try = now + PAUSE
        self.metrics.errors["redis"] += 1
        # A Redis that was killed may have lost claims: the first contact checks this.
        link.next_extend = self.monotonic() + PAUSE
        if link.outage_since is None:
            link.outage_since = now
            log.error("%s; running tasks continue while their leases hold", error, extra=self._about(link))
        if len(self.links) > 1:
            link.probe(PAUSE, self.wake)

    def _on_refusal(self, link: StoreLink, now: float, error: ResponseError) -> None:
        """Handles a failed step of a working Redis: likely caused by a corrupt record, which must not delay the rest.

        Nor may it cost the leases of running tasks, whose answers came with the error.
        """
        link.next_try = now + PAUSE
        self.metrics.errors["script"] += 1
        log.error("a step failed in Redis: %s; sending reports one by one", error, extra=self._about(link))
        events = SyncResult()
        try:
            link.session.report_one_by_one(events)
            link.session.extend(self._to_extend(link), events)
        except StoreUnavailable as away:
            self._on_outage(link, now, away)
        self._apply(events)

    def _on_answer(self, link: StoreLink, now: float) -> None:
        if link.outage_since is not None:
            log.info("Redis reachable again after %.1f s", now - link.outage_since, extra=self._about(link))
            link.outage_since = None

    def _about(self, link: StoreLink) -> dict[str, int]:
        """Returns the fields of a log line about a store, where there are several."""
        return {self.settings.stores.noun: link.number} if len(self.links) > 1 else {}

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
        ended = report.ended
        self.metrics.ended(report.claimed.name, ended.state, ended.run_us / 1_000_000, ended.error_type)
        self.failure_log.add(report)
        if ended.outcome == Outcome.REFUSED and not ended.version:
            self.heartbeat_due.set()  # the published types differ from its executors'

    def _receive(self, claimed: ClaimedTask) -> None:
        self._numbers = self._numbers % 0xFFFFFFFF + 1
        claimed.number = self._numbers
        claimed.limit = self._limit(claimed)
        if claimed.enqueued_us:
            started_us = int(self.monotonic() * 1_000_000) + claimed.clock_offset_us
            self.metrics.waits.observe(max(0, started_us - claimed.enqueued_us) / 1_000_000)
        alone = claimed.crashed_before and claimed.company(self.settings.slots) == 1
        claimed.concurrent = self.pool.is_concurrent(claimed.name) and not alone
        self.pool.concurrent_wanted = self.pool.concurrent_wanted or claimed.concurrent
        if not self.lanes.add(claimed):
            claimed.give_back()  # it returns to the lane of its type

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

    def _claim_sizes(self, link: StoreLink, now: float) -> dict[Lane, int]:
        """Returns how many tasks to claim now for each lane that has a reason to claim."""
        draining = self.draining_until is not None
        if not link.types_known and not draining:
            return {}
        sizes = {lane: lane.claim_size(link.of(lane), draining, now) for lane in self.lanes}
        return {lane: size for lane, size in sizes.items() if size is not None}

    def _hand_out(self) -> None:
        """Assigns ready tasks to executors."""
        if not any(lane.ready for lane in self.lanes):
            return
        if self.draining_until is not None:
            for lane in self.lanes:
                for claimed in lane.ready:
                    claimed.give_back()
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
        link = next(each for each in self.links if each.session is claimed.session)
        if link.probed or self.monotonic() < link.next_try:
            self.lanes.of(claimed).ready.append(claimed)
            return False
        try:
            may = link.session.note_begun(claimed)
            failpoint("worker.begun-noted")
            return may
        except StoreUnavailable as error:
            self._on_outage(link, self.monotonic(), error)
        except ResponseError as error:
            link.next_try = self.monotonic() + PAUSE
            log.error("task %s: its start cannot be recorded: %s", claimed.id.decode(), error)
        claimed.give_back()
        return False


def forward_signals(engine: Engine, grace: float) -> None:
    """Makes SIGTERM and SIGINT drain, and RELOAD reload the handlers.

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
