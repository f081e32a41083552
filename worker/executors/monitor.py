"""The executor monitor: events of executors, limits of their tasks, their deaths, and commands to stop them."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from shared.config.settings import Settings
from shared.domain.task import TaskState
from shared.failpoints import failpoint
from shared.stores.task_types import TypeSet
from worker.engine.claimed_task import ClaimedTask
from worker.engine.prefetch import PrefetchWindow
from worker.engine.redis_session import RedisSession, Report
from worker.executors import ipc
from worker.executors.crash_reports import CrashReports
from worker.executors.ipc import CANCEL_SIGNAL, TIME_LIMIT_SIGNAL
from worker.executors.pool import ExecutorPool
from worker.executors.process import ExecutorProcess
from worker.executors.tracing import SpanForwarder
from worker.metrics import WorkerMetrics

log = logging.getLogger(__name__)

_ITS_OWN_FAULT = ("memory: ", "pipes: ")
"""Reasons for killing an executor that are charged to its running task."""
_WORKER_STOPS = "the worker stops"
CLOSED_PIPE_GRACE = 0.5
"""Seconds for which an executor may live after its pipe was closed: a dying one needs less."""
SLOW = 0.1
"""Seconds of run time after which nothing is queued behind a task, and queued tasks are reassigned."""


class ExecutorMonitor:
    """Moves tasks out of executors: to the session as reports or releases, or back to `ready`."""

    def __init__(
        self,
        settings: Settings,
        pool: ExecutorPool,
        session: RedisSession,
        crash_reports: CrashReports,
        metrics: WorkerMetrics,
        spans: SpanForwarder,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.pool = pool
        self.session = session
        self.crash_reports = crash_reports
        self.metrics = metrics
        self.spans = spans
        self.monotonic = monotonic
        self.ready: deque[ClaimedTask] = deque()
        self.prefetch = PrefetchWindow()
        self._not_claimed_ahead = frozenset(queue.encode() for queue in settings.queue_executors)
        self.check_due = False
        """Whether the next pass of the loop has to check every executor."""
        self.progress_came = False
        self.drain_began_at = 0.0

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
        began_at = executor.began_at
        claimed = executor.finished(ended.number)
        if claimed is None:
            return
        if ended.state == TaskState.CANCELLED and not claimed.cancelled:
            # The command was for the task before this one.
            report = self.crash_reports.interrupted(claimed, began_at, "its executor was stopped for another task")
            self.session.report(report)
            return
        if claimed.queue not in self._not_claimed_ahead:
            self.prefetch.learn(ended.run_us / 1_000_000)
        self.session.report(Report(claimed, *ended[1:]))

    def _on_event(self, executor: ExecutorProcess, name: str, fields: list[Any]) -> None:
        if name == ipc.SPAN:
            self.spans.forward(fields[0])
            return
        if name == ipc.LEFT:
            self._on_leftovers(executor, *fields)
            return
        claimed = executor.assigned.get(fields[0])
        if claimed is None:
            return
        if name == ipc.PROGRESS:
            claimed.progress = fields[1]
            self.progress_came = True
        else:
            claimed.log(fields[1], self.settings.max_log_bytes)

    def _on_leftovers(self, executor: ExecutorProcess, handler: str, what: str, level: int, ends: bool) -> None:
        """Logs what a handler left behind, and replaces an executor that ends for it; no other task has begun there."""
        log.log(level, "handler %s left behind %s", handler, what, extra={"executor": executor.pid, "replaced": ends})
        if ends:
            executor.retire()
            for claimed in executor.take_back():
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
            if executor.assigned:
                self._keep_to_limits(executor, now)
            elif executor.retiring:
                executor.shutdown()
                if executor.overdue(now):
                    executor.kill("it was replaced and did not end")
            if executor.closed_pipe_at is not None and now > executor.closed_pipe_at + CLOSED_PIPE_GRACE:
                executor.kill("pipes: the handler closed the executor's connection to its worker")
        self._reassign_waiting(now)
        self._release_expiring(now)

    def _keep_to_limits(self, executor: ExecutorProcess, now: float) -> None:
        claimed = executor.running()
        if claimed is None:
            return
        ran = now - executor.began_at
        if ran > SLOW:
            for waiting in executor.take_back():
                self._reassign(waiting)
        if executor.stop_by is not None and now > executor.stop_by:
            executor.kill("cancelled" if claimed.cancelled else "time limit")
        elif ran > claimed.limit and not claimed.cancelled:
            # Repeated: a signal before the limit on the executor's own clock is ignored there.
            executor.stop_by = executor.stop_by or now + self.settings.kill_grace
            executor.signal(TIME_LIMIT_SIGNAL)
        limit = self.settings.executor_max_memory_bytes
        if limit and executor.exceeds(limit, now):
            executor.kill(
                f"memory: it and the processes that it started used more than {limit >> 20} MiB "
                "(EXECUTOR_MAX_MEMORY_BYTES) and were killed"
            )

    def _reassign_waiting(self, now: float) -> None:
        """Reassigns waiting tasks when all executors are slow, so that other workers can run them."""
        if all(executor.assigned and now - executor.began_at > SLOW for executor in self.pool):
            waiting = list(self.ready)
            self.ready.clear()
            for claimed in waiting:
                self._reassign(claimed)

    def _reassign(self, claimed: ClaimedTask) -> None:
        """Reassigns a task to an idle executor here, or returns it to its queue."""
        if self.pool.spawning and any(executor.idle for executor in self.pool):
            self.ready.append(claimed)
        else:
            self.metrics.given_back += 1
            self.session.releases.append(claimed)
            failpoint("worker.taken-back")

    def _release_expiring(self, now: float) -> None:
        """Stops tasks whose lease could not be extended, before it can end in Redis."""
        trusted = now + self.session.margin
        for claimed in [each for each in self.ready if each.lease_until < trusted]:
            self.ready.remove(claimed)
            self.session.releases.append(claimed)
        for executor in self.pool:
            if any(claimed.lease_until < trusted for claimed in executor.assigned.values()):
                self.session.releases += executor.take_back()
                if executor.running() is not None:
                    executor.kill("lease: it could not be extended in time")

    # --- the death of an executor ---

    def reap(self, executor: ExecutorProcess) -> None:
        """Reports its finished tasks and the running one, and reassigns those not begun."""
        self._read(executor)
        for claimed in executor.take_back():
            self._reassign(claimed)
        for claimed in executor.assigned.values():
            self._on_death(executor, claimed)
        failpoint("worker.reaped")
        self.pool.lost(executor)
        executor.assigned.clear()

    def _on_death(self, executor: ExecutorProcess, claimed: ClaimedTask) -> None:
        because = executor.killed_because or ""
        report = self._crash_report(executor, claimed, because)
        self.spans.crashed(claimed, executor.began_at, report)
        self.session.report(report)

    def _crash_report(self, executor: ExecutorProcess, claimed: ClaimedTask, because: str) -> Report:
        began_at = executor.began_at
        if not because and executor.was_ended_by_watchdog():
            because = "lease: its worker hung and did not extend it in time"
        if because == "time limit" and self.monotonic() - began_at >= claimed.limit:
            return self.crash_reports.timed_out(claimed, began_at)
        if because == "cancelled" and claimed.cancelled:
            return self.crash_reports.cancelled(claimed, began_at)
        if because == _WORKER_STOPS:
            return self.crash_reports.stopped(claimed, began_at, self.drain_began_at)
        if because and not because.startswith(_ITS_OWN_FAULT):
            return self.crash_reports.interrupted(claimed, began_at, f"its executor was stopped ({because})")
        self.metrics.crashes += 1
        self.metrics.errors["executor_crash"] += 1
        why = because.partition(": ")[2] or executor.cause_of_death()
        log.warning("task %s: %s", claimed.id.decode(), why, extra=claimed.log_fields)
        return self.crash_reports.crashed(claimed, began_at, why)

    # --- commands ---

    def cancel(self, task_id: bytes) -> None:
        """Stops a cancelled task. One that has not begun is returned to Redis, which ends it."""
        for claimed in [each for each in self.ready if each.id == task_id]:
            self.ready.remove(claimed)
            self.session.releases.append(claimed)
        for executor in self.pool:
            if any(claimed.id == task_id for claimed in executor.assigned.values()):
                self._cancel_at(executor, task_id)

    def _cancel_at(self, executor: ExecutorProcess, task_id: bytes) -> None:
        for claimed in executor.take_back():
            if claimed.id == task_id:
                self.session.releases.append(claimed)
            else:
                self.ready.appendleft(claimed)
        running = executor.running()
        if running is not None and running.id == task_id and not running.cancelled:
            running.cancelled = True
            executor.stop_by = self.monotonic() + self.settings.kill_grace
            executor.signal(CANCEL_SIGNAL)

    def abandon(self, claimed: ClaimedTask) -> None:
        """Stops a task whose lease was lost to another worker."""
        self.metrics.leases_lost += claimed.lose()
        if claimed in self.ready:
            self.ready.remove(claimed)
            return
        for executor in self.pool:
            if executor.assigned.get(claimed.number) is claimed:
                self.ready.extendleft(other for other in executor.take_back() if other is not claimed)
                if executor.running() is claimed:
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
            self.session.releases += executor.take_back()
            if executor.assigned and grace_over:
                executor.kill(_WORKER_STOPS)
