"""The executor monitor: events of executors, limits of their tasks, their deaths, and commands to stop them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from firmq.shared.config.settings import Settings
from firmq.shared.domain.task import TaskState
from firmq.shared.failpoints import failpoint
from firmq.shared.stores.task_types import TypeSet
from firmq.worker.engine.claimed_task import ClaimedTask
from firmq.worker.engine.lane import SLOW, Lanes
from firmq.worker.engine.redis_session import Report
from firmq.worker.executors import ipc
from firmq.worker.executors.crash_reports import CrashReports
from firmq.worker.executors.ipc import CANCEL_SIGNAL, TIME_LIMIT_SIGNAL
from firmq.worker.executors.pool import ExecutorPool
from firmq.worker.executors.process import ExecutorProcess
from firmq.worker.executors.tracing import SpanForwarder
from firmq.worker.metrics import WorkerMetrics

log = logging.getLogger(__name__)

_ITS_OWN_FAULT = ("memory: ", "pipes: ", "hung: ")
"""Reasons for killing an executor that are charged to its running task, or make its running tasks suspects."""
_WORKER_STOPS = "the worker stops"
_RELOADED = "the handlers were reloaded"
CLOSED_PIPE_GRACE = 0.5
"""Seconds for which an executor may live after its pipe was closed: a dying one needs less."""
LONGEST_WAIT = 0.25
"""Seconds that a task may wait for a slot of a concurrent executor: then another worker may run it sooner."""
SILENT = 6.0
"""Seconds without an event of a concurrent executor after which it counts as hung: its loop answers a ping at once."""
_MOST_LOGGED = 1000


class ExecutorMonitor:
    """Moves tasks out of executors: to the session as reports or releases, or back to their lane."""

    def __init__(
        self,
        settings: Settings,
        pool: ExecutorPool,
        lanes: Lanes,
        margin: float,
        crash_reports: CrashReports,
        metrics: WorkerMetrics,
        spans: SpanForwarder,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`margin` is the sessions'."""
        self.settings = settings
        self.pool = pool
        self.lanes = lanes
        self.margin = margin
        self.crash_reports = crash_reports
        self.metrics = metrics
        self.spans = spans
        self.monotonic = monotonic
        self.check_due = False
        """Whether the next pass of the loop has to check every executor."""
        self.progress_came = False
        self.drain_began_at = 0.0
        self._logged: set[tuple[str, str]] = set()

    # --- events of executors ---

    def read_events(self) -> None:
        """Handles everything that has arrived."""
        for executor in self.pool:
            self._read(executor)
            if executor.closed_pipe_at is not None:
                self.check_soon()  # most likely it is dead

    def _read(self, executor: ExecutorProcess) -> None:
        """Handles the events of one executor. One with a corrupt stream (a handler wrote into its pipe) is killed."""
        try:
            for name, *fields in executor.read():
                if name == ipc.OUTCOME:
                    self._on_outcome(executor, ipc.EndedAttempt(*fields))
                elif name == ipc.HELLO:
                    self.pool.on_hello(executor, TypeSet(*fields))
                    self.metrics.know(self.pool.types)
                else:
                    self._on_event(executor, name, fields)
        except (ValueError, TypeError, EOFError, IndexError) as error:
            executor.closed_to_input = True
            executor.kill(f"pipes: the handler wrote into the executor's connection to its worker ({error})")

    def _on_outcome(self, executor: ExecutorProcess, ended: ipc.EndedAttempt) -> None:
        held = executor.assigned.get(ended.number)
        began_at = executor.began_at(held) if held else 0.0
        claimed = executor.finished(ended.number)
        if claimed is None:
            return
        if ended.state == TaskState.CANCELLED and not claimed.cancelled:
            # The command was for the task before this one.
            report = self.crash_reports.interrupted(claimed, began_at, "its executor was stopped for another task")
            claimed.session.report(report)
            return
        self.lanes.of(claimed).on_ended(claimed, ended.run_us / 1_000_000)
        claimed.session.report(Report(claimed, ended))

    def _on_event(self, executor: ExecutorProcess, name: str, fields: list[Any]) -> None:
        if name == ipc.SPAN:
            self.spans.forward(fields[0])
        elif name == ipc.LEFT:
            self._on_leftovers(executor, *fields)
        elif name == ipc.BLOCKED:
            self._on_blocked(executor, *fields)
        elif name == ipc.STUCK:
            executor.culprits.add(fields[0])
            executor.kill("stuck" if fields[0] else "hung: its event loop is blocked by an unknown task")
            self.check_soon()
        elif name != ipc.PONG and (claimed := executor.assigned.get(fields[0])):
            self._on_event_of_task(executor, claimed, name, fields)

    def _on_event_of_task(self, executor: ExecutorProcess, claimed: ClaimedTask, name: str, fields: list[Any]) -> None:
        if name in (ipc.STOPPED, ipc.FREED):
            self._on_stopped(executor, claimed, blocked=name == ipc.FREED)
        elif name == ipc.PROGRESS:
            claimed.progress = fields[1]
            self.progress_came = True
        else:
            claimed.log(fields[1], self.settings.max_log_bytes)

    def _on_blocked(
        self, executor: ExecutorProcess, number: int, handler: str, seconds: float, where: str, stack: str
    ) -> None:
        """Logs which task keeps the event loop from the others, and runs its type one at a time from now on."""
        claimed = executor.assigned.get(number)
        fields = claimed.log_fields if claimed else {}
        what = (
            f"task {claimed.id.decode()} ({handler})" if claimed else f"handler {handler}" if handler else "a callback"
        )
        text = "%s blocked the event loop of executor %d for %.1f s at %s:\n%s"
        log.warning(text, what, executor.pid, seconds, where, stack.rstrip(), extra=fields)
        self.metrics.errors["blocked_loop"] += 1
        if handler and handler not in self.pool.blocking:
            self.pool.blocking[handler] = where
            self.pool.heartbeat_due.set()
            log.warning("tasks of type %s run one at a time until this worker restarts", handler)

    def _on_stopped(self, executor: ExecutorProcess, claimed: ClaimedTask, blocked: bool) -> None:
        """Reports an attempt that its executor stopped; it runs again at no cost."""
        began_at = executor.began_at(claimed)
        executor.finished(claimed.number)
        if blocked:
            why = "it blocked the event loop of its executor, which ran other tasks too"
            claimed.session.report(self.crash_reports.interrupted(claimed, began_at, why))
        else:
            claimed.session.report(self.crash_reports.stopped(claimed, began_at, self.drain_began_at))

    def _on_leftovers(self, executor: ExecutorProcess, handler: str, what: str, level: int, ends: bool) -> None:
        """Logs once what a handler left behind; replaces an executor that ends for it, before another task begins."""
        if (about := (handler, what)) not in self._logged and len(self._logged) < _MOST_LOGGED:
            self._logged.add(about)
            log.log(level, "handler %s left behind %s", *about, extra={"executor": executor.pid, "replaced": ends})
        if ends:
            not_begun = executor.take_back()
            self.pool.replace(executor)
            if not executor.assigned:
                executor.retire()  # it begins none that it gets now
            for claimed in not_begun:
                self._reassign(claimed)
            self.check_soon()

    # --- limits ---

    def check_soon(self) -> None:
        """Makes the next pass of the loop check every executor."""
        self.check_due = True

    def check(self, now: float) -> None:
        """Finds dead executors, stops tasks over their limits, returns tasks whose leases cannot be kept."""
        self.check_due = False
        for executor in list(self.pool):
            if executor.is_dead():
                self.reap(executor)
                continue
            executor.flush()
            if executor.retire_by is not None:
                self._empty(executor, now > executor.retire_by)
            if executor.assigned:
                self._check_tasks(executor, now)
            elif executor.retiring:
                executor.shutdown()
                if executor.overdue(now):
                    executor.kill("it was replaced and did not end")
            if executor.closed_pipe_at is not None and now > executor.closed_pipe_at + CLOSED_PIPE_GRACE:
                executor.kill("pipes: the handler closed the executor's connection to its worker")
        self._reassign_waiting(now)
        self._release_expiring(now)

    def _check_tasks(self, executor: ExecutorProcess, now: float) -> None:
        if executor.concurrent:
            self._keep_turning(executor, now)
        else:
            self._keep_to_limits(executor, now)
        self._keep_memory(executor, now)

    def _empty(self, executor: ExecutorProcess, grace_over: bool) -> None:
        """Reassigns tasks that have not begun; when the grace is over, also returns running ones."""
        for claimed in executor.take_back():
            self._reassign(claimed)
        if executor.assigned and grace_over:
            executor.kill(_RELOADED)

    def _keep_to_limits(self, executor: ExecutorProcess, now: float) -> None:
        for claimed in executor.begun():
            ran = now - executor.turn_began_at
            if ran > SLOW:
                for waiting in executor.take_back():
                    self._reassign(waiting)
            if executor.stop_by is not None and now > executor.stop_by:
                executor.kill("cancelled" if claimed.cancelled else "time limit")
            elif ran > claimed.limit and not claimed.cancelled:
                # Repeated: a signal before the limit on the executor's own clock is ignored there.
                executor.stop_by = executor.stop_by or now + self.settings.kill_grace
                executor.signal(TIME_LIMIT_SIGNAL)

    def _keep_turning(self, executor: ExecutorProcess, now: float) -> None:
        """Ends a concurrent executor whose loop does not turn, and reassigns tasks that wait too long for a slot.

        It keeps to the limits of its tasks by itself.
        """
        if now > executor.full_since() + LONGEST_WAIT:
            for waiting in executor.take_back():
                self._reassign(waiting)
        if executor.pinged_at is not None:
            if now > executor.pinged_at + SILENT:
                executor.kill("hung: its event loop did not turn")
        elif now > executor.last_event_at + 1.0:
            executor.pinged_at = now
            executor.command(ipc.PING)

    def _keep_memory(self, executor: ExecutorProcess, now: float) -> None:
        limit = self.settings.executor_max_memory_bytes
        if limit and executor.exceeds(limit, now):
            executor.kill(
                f"memory: it and the processes that it started used more than {limit >> 20} MiB "
                "(EXECUTOR_MAX_MEMORY_BYTES) and were killed"
            )

    def _reassign_waiting(self, now: float) -> None:
        """Reassigns waiting tasks when all executors are slow, so that other workers can run them."""
        for lane in self.lanes:
            if lane.ready and lane.is_blocked(now):
                # A suspect from the other lane waits here: that lane is not blocked, and would claim it again at once.
                for claimed in [each for each in lane.ready if each.lane == lane.suffix]:
                    lane.ready.remove(claimed)
                    self._reassign(claimed)

    def _reassign(self, claimed: ClaimedTask) -> None:
        """Reassigns a task to an idle executor here, or returns it to its queue."""
        lane = self.lanes.of(claimed)
        if self.pool.spawning and any(executor.idle for executor in lane.executors):
            lane.ready.append(claimed)
        else:
            self.metrics.given_back += 1
            claimed.give_back()
            failpoint("worker.taken-back")

    def _release_expiring(self, now: float) -> None:
        """Stops tasks whose lease could not be extended, before it can end in Redis."""
        trusted = now + self.margin
        for claimed in [each for each in self.lanes.ready() if each.lease_until < trusted]:
            self.lanes.remove(claimed)
            claimed.give_back()
        for executor in self.pool:
            if any(claimed.lease_until < trusted for claimed in executor.assigned.values()):
                _give_back(executor.take_back())
                if executor.assigned:
                    executor.kill("lease: it could not be extended in time")

    # --- the death of an executor ---

    def reap(self, executor: ExecutorProcess) -> None:
        """Reports its finished tasks and the running one, and reassigns those not begun."""
        self._read(executor)
        for claimed in executor.take_back():
            self._reassign(claimed)
        many = len(executor.assigned) > 1
        for claimed in executor.assigned.values():
            self._on_death(executor, claimed, many)
        failpoint("worker.reaped")
        self.pool.lost(executor)
        executor.assigned.clear()

    def _on_death(self, executor: ExecutorProcess, claimed: ClaimedTask, many: bool) -> None:
        began_at = executor.began_at(claimed)
        report = self._crash_report(executor, claimed, executor.killed_because or "", began_at, many)
        self.spans.crashed(claimed, began_at, report)
        claimed.session.report(report)

    def _crash_report(
        self, executor: ExecutorProcess, claimed: ClaimedTask, because: str, began_at: float, many: bool
    ) -> Report:
        if not because and executor.was_ended_by_watchdog():
            because = "lease: its worker hung and did not extend it in time"
        if because == "stuck" and claimed.number in executor.culprits:
            because = "cancelled" if claimed.cancelled else "time limit"
        if because == "time limit" and self.monotonic() - began_at >= claimed.limit:
            return self.crash_reports.timed_out(claimed, began_at)
        if because == "cancelled" and claimed.cancelled:
            return self.crash_reports.cancelled(claimed, began_at)
        if because == _WORKER_STOPS:
            return self.crash_reports.stopped(claimed, began_at, self.drain_began_at)
        if because and not because.startswith(_ITS_OWN_FAULT):
            return self.crash_reports.interrupted(claimed, began_at, f"its executor was stopped ({because})")
        why = because.partition(": ")[2] or executor.cause_of_death()
        if many:
            log.warning("task %s: %s; it ran with other tasks", claimed.id.decode(), why, extra=claimed.log_fields)
            return self.crash_reports.suspected(claimed, began_at, why, len(executor.assigned))
        self.metrics.crashes += 1
        self.metrics.errors["executor_crash"] += 1
        log.warning("task %s: %s", claimed.id.decode(), why, extra=claimed.log_fields)
        return self.crash_reports.crashed(claimed, began_at, why)

    # --- commands ---

    def cancel(self, task_id: bytes) -> None:
        """Stops a cancelled task. One that has not begun is returned to Redis, which ends it."""
        for claimed in [each for each in self.lanes.ready() if each.id == task_id]:
            self.lanes.remove(claimed)
            claimed.give_back()
        for executor in self.pool:
            if any(claimed.id == task_id for claimed in executor.assigned.values()):
                self._cancel_at(executor, task_id)

    def _cancel_at(self, executor: ExecutorProcess, task_id: bytes) -> None:
        for claimed in executor.take_back():
            if claimed.id == task_id:
                claimed.give_back()
            else:
                self.lanes.of(claimed).ready.appendleft(claimed)
        for running in executor.begun():
            if running.id == task_id and not running.cancelled:
                running.cancelled = True
                if executor.concurrent:
                    executor.command(ipc.CANCEL, running.number)
                else:
                    executor.stop_by = self.monotonic() + self.settings.kill_grace
                    executor.signal(CANCEL_SIGNAL)

    def abandon(self, claimed: ClaimedTask) -> None:
        """Stops a task whose lease was lost to another worker."""
        self.metrics.leases_lost += claimed.lose()
        if self.lanes.remove(claimed):
            return
        for executor in self.pool:
            if executor.assigned.get(claimed.number) is claimed:
                self.lanes.of(claimed).ready.extendleft(other for other in executor.take_back() if other is not claimed)
                if executor.concurrent:
                    executor.command(ipc.ABANDON, claimed.number)
                elif claimed in executor.begun():
                    log.warning(
                        "task %s: lease lost, stopping it",
                        claimed.id.decode(),
                        extra=claimed.log_fields,
                    )
                    executor.kill("lease: it was lost")

    def drain(self, began_at: float, grace_over: bool) -> None:
        """Returns tasks that have not begun; when the grace is over, also running ones."""
        self.drain_began_at = began_at
        for executor in self.pool:
            _give_back(executor.take_back())
            if not executor.assigned or not grace_over:
                continue
            now = self.monotonic()
            if executor.concurrent and executor.stop_by is None:
                executor.stop_by = now + self.settings.kill_grace
                executor.command(ipc.STOP)
            elif not executor.concurrent or now > (executor.stop_by or 0.0):
                executor.kill(_WORKER_STOPS)


def _give_back(tasks: Iterable[ClaimedTask]) -> None:
    for each in tasks:
        each.give_back()
