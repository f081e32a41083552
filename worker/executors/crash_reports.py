"""Reports of attempts whose executor died or was killed, written by the worker."""

from __future__ import annotations

import base64
import json
import logging
import zlib
from collections.abc import Mapping
from random import Random

from firmq.shared.domain import failure_fingerprint
from firmq.shared.domain.clock import monotonic_us, to_us
from firmq.shared.domain.decode import UNREADABLE
from firmq.shared.domain.retry import RetryPolicy
from firmq.shared.domain.task import Outcome, TaskState
from firmq.shared.redis.client import text
from firmq.worker.engine.claimed_task import ClaimedTask
from firmq.worker.engine.redis_session import Report
from firmq.worker.executors.attempt_record import attempt_record
from firmq.worker.executors.ipc import EndedAttempt
from firmq.worker.executors.pool import ExecutorPool

log = logging.getLogger(__name__)

SOON = 60.0
"""Seconds from an attempt's start in which a stop of its worker may be caused by it."""
MAX_LOSSES = 20
"""How many workers in a row a task may lose or see stopped, as in `reap.lua`."""


class CrashReports:
    """Decides the outcome after a crash, a kill or an interruption."""

    def __init__(
        self, worker: str, policy: RetryPolicy, max_crashes: int, pool: ExecutorPool, app_version: str = ""
    ) -> None:
        """`pool` knows the task types, with their retry policies."""
        self.worker = worker
        self.app_version = app_version
        self.policy = policy
        self.max_crashes = max_crashes
        self.pool = pool
        self.random = Random()

    def crashed(self, claimed: ClaimedTask, began_at: float, why: str) -> Report:
        """Reports the death of its executor: a retry after a pause, or a dead letter as a poison task."""
        error = {"type": "ExecutorCrashed", "message": f"the executor died while running this task: {why}"}
        crashes = claimed.crashes + 1
        if crashes >= self.max_crashes:
            error = {"type": "PoisonTask", "message": f"crashed {crashes} times; last: {error['message']}"}
            return self._report(claimed, Outcome.CRASHED, TaskState.FAILED, began_at, error)
        delay = self._policy(claimed).override({"max_retries": crashes}).delay(crashes, self.random)
        return self._report(claimed, Outcome.CRASHED, TaskState.RETRYING, began_at, error, to_us(delay) if delay else 0)

    def suspected(self, claimed: ClaimedTask, began_at: float, why: str, beside: int) -> Report:
        """Reports the death of an executor that ran several tasks: each runs again in a smaller group, uncharged."""
        message = f"its executor, which ran {beside} tasks, died: {why}"
        return self._interrupted(claimed, began_at, message, suspicions=claimed.suspicions + 1)

    def timed_out(self, claimed: ClaimedTask, began_at: float) -> Report:
        """Reports a task that did not stop at its time limit and was killed."""
        error = {
            "type": "TimeLimitExceeded",
            "message": f"exceeded its time limit of {claimed.limit:g} s, did not stop when asked and was killed",
        }
        delay = self._policy(claimed).delay(claimed.failures + 1, self.random)
        if delay is None:
            return self._report(claimed, Outcome.TIMED_OUT, TaskState.FAILED, began_at, error)
        return self._report(claimed, Outcome.TIMED_OUT, TaskState.RETRYING, began_at, error, to_us(delay))

    def interrupted(self, claimed: ClaimedTask, began_at: float, why: str) -> Report:
        """Reports an interruption by the worker: returned to its queue, at no cost."""
        return self._interrupted(claimed, began_at, why)

    def _interrupted(
        self,
        claimed: ClaimedTask,
        began_at: float,
        why: str,
        *,
        losses: int | None = None,
        suspicions: int | None = None,
    ) -> Report:
        error = {"type": "Interrupted", "message": why}
        report = self._report(claimed, Outcome.INTERRUPTED, TaskState.PENDING, began_at, error)
        report.ended = report.ended._replace(
            enqueued_us=claimed.enqueued_us or None, losses=losses, suspicions=suspicions
        )
        return report

    def stopped(self, claimed: ClaimedTask, began_at: float, drain_began_at: float) -> Report:
        """Reports a task whose worker stops: returned at no cost, or a dead letter when that repeats after its start.

        A handler that sends SIGTERM to its worker would stop one after another. So a task whose workers are stopped
        soon after its start is a suspect; from the fourth time in a row its retries are delayed more and more, until a
        poison task results. Updates do not reach that: the pauses alone add up to most of an hour, and an attempt of
        longer duration resets the count.
        """
        times = 0 if drain_began_at - began_at > SOON else claimed.losses + 1
        if times >= MAX_LOSSES:
            why = f"{times} workers in a row were stopped within {SOON:g} s of its start"
            error = {"type": "PoisonTask", "message": why}
            return self._report(claimed, Outcome.INTERRUPTED, TaskState.FAILED, began_at, error)
        return self._interrupted(claimed, began_at, "its executor was stopped (the worker stops)", losses=times)

    def cancelled(self, claimed: ClaimedTask, began_at: float) -> Report:
        """Reports a task that did not stop when cancelled and was killed."""
        error = {"type": "TaskCancelled", "message": "the task was cancelled while it ran; it was killed"}
        return self._report(claimed, Outcome.CANCELLED, TaskState.CANCELLED, began_at, error)

    def _policy(self, claimed: ClaimedTask) -> RetryPolicy:
        known = self.pool.types.get(claimed.name)
        policy = self.policy.override(known.retry if known else None)
        try:
            return policy.override(json.loads(claimed.retry) if claimed.retry else None)
        except UNREADABLE as error:
            log.error("task %s: corrupt retry policy, using the general one: %s", text(claimed.id), error)
            return policy

    def _report(
        self,
        claimed: ClaimedTask,
        outcome: Outcome,
        state: TaskState,
        began_at: float,
        error: Mapping[str, str],
        delay_us: int | None = None,
    ) -> Report:
        offset = claimed.clock_offset_us
        started_us, ended_us = int(began_at * 1_000_000) + offset, monotonic_us() + offset
        record = attempt_record(
            self.worker,
            self.app_version,
            claimed.enqueued_us,
            started_us,
            ended_us,
            claimed.traceparent,
            claimed.logs,
        )
        record |= {"outcome": outcome, "error": error}
        if delay_us is not None:
            record["retry_delay"] = delay_us / 1_000_000
        text = f"{error['type']}: {error['message']}".encode("utf-8", "backslashreplace")
        ended = EndedAttempt(
            outcome,
            state,
            json.dumps(record).encode(),
            run_us=ended_us - started_us,
            error_type=error["type"],
            error=json.dumps({**error, "pattern": failure_fingerprint.pattern(error["message"])}).encode(),
            traceback=base64.b64encode(zlib.compress(text)) if state is TaskState.FAILED else None,
            delay_us=delay_us,
        )
        return Report(claimed, ended)
