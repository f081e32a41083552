"""What the worker itself writes about an attempt, when the executor that ran it cannot."""

from __future__ import annotations

import base64
import json
import logging
import time
import zlib
from collections.abc import Mapping
from random import Random
from typing import Any

from shared.domain import failure_fingerprint
from shared.domain.clock import monotonic_us, to_us
from shared.domain.decode import UNREADABLE
from shared.domain.retry import RetryPolicy
from shared.domain.task import Outcome
from shared.domain.traceparent import trace_id
from shared.redis.client import text
from shared.stores.task_types import TaskType
from worker.engine.claimed_task import ClaimedTask
from worker.engine.redis_session import Report

log = logging.getLogger(__name__)

SOON = 60.0
"""Seconds from an attempt's beginning in which a stop of its worker may be its own doing."""
MAX_LOSSES = 20
"""Workers that a task may lose or have stopped in a row, as in `reap.lua`."""


class CrashReports:
    """Decides what follows a crash, a kill or an interruption."""

    def __init__(self, worker: str, policy: RetryPolicy, max_crashes: int) -> None:
        self.worker = worker
        self.policy = policy
        self.max_crashes = max_crashes
        self.types: Mapping[str, TaskType] = {}
        self.random = Random()

    def crashed(self, claimed: ClaimedTask, began_at: float, why: str) -> Report:
        """The executor died under it: another try after a pause, or the dead letters as a poison task."""
        error = {"type": "ExecutorCrashed", "message": f"the executor died while it ran this task: {why}"}
        crashes = claimed.crashes + 1
        if crashes >= self.max_crashes:
            error = {"type": "PoisonTask", "message": f"it crashed {crashes} times; the last: {error['message']}"}
            return self._report(claimed, "poisoned", Outcome.CRASHED, began_at, error)
        delay = self._policy(claimed).override({"max_retries": crashes}).delay(crashes, self.random)
        return self._report(claimed, "crashed", Outcome.CRASHED, began_at, error, to_us(delay) if delay else 0)

    def timed_out(self, claimed: ClaimedTask, began_at: float) -> Report:
        """It did not stop at its time limit and was killed."""
        error = {
            "type": "TimeLimitExceeded",
            "message": f"it ran longer than its time limit of {claimed.limit:g} s, did not stop when asked "
            "and was killed",
        }
        delay = self._policy(claimed).delay(claimed.failures + 1, self.random)
        if delay is None:
            return self._report(claimed, "failed", Outcome.TIMED_OUT, began_at, error)
        return self._report(claimed, "retrying", Outcome.TIMED_OUT, began_at, error, to_us(delay))

    def interrupted(self, claimed: ClaimedTask, began_at: float, why: str) -> Report:
        """Stopped for the worker's own reasons: given back at no cost."""
        error = {"type": "Interrupted", "message": why}
        report = self._report(claimed, "interrupted", Outcome.INTERRUPTED, began_at, error, claimed.enqueued_us)
        report.payload = b""
        return report

    def stopped(self, claimed: ClaimedTask, began_at: float, drain_began_at: float) -> Report:
        """Its worker was told to stop: given back at no cost, or the dead letters when that comes after it every time.

        A handler that sends SIGTERM to its worker would stop one after the other. So a task whose workers are told to
        stop soon after it began is a suspect; from the fourth time in a row on it waits longer and longer, and in the
        end it is a poison task. Updates do not reach that: the pauses alone add up to most of an hour, and an attempt
        that ran for longer begins the count anew.
        """
        report = self.interrupted(claimed, began_at, "its executor was stopped (the worker stops)")
        if drain_began_at - began_at > SOON:
            report.payload = b"0"
            return report
        times = claimed.losses + 1
        if times >= MAX_LOSSES:
            why = f"{times} workers were stopped within {SOON:g} s of its beginning, one after the other"
            error = {"type": "PoisonTask", "message": why}
            return self._report(claimed, "poisoned", Outcome.INTERRUPTED, began_at, error)
        report.payload = b"%d" % times
        return report

    def cancelled(self, claimed: ClaimedTask, began_at: float) -> Report:
        """It did not stop when it was cancelled and was killed."""
        error = {"type": "TaskCancelled", "message": "somebody cancelled the task while it ran; it was killed"}
        return self._report(claimed, "cancelled", Outcome.CANCELLED, began_at, error)

    def _policy(self, claimed: ClaimedTask) -> RetryPolicy:
        known = self.types.get(claimed.name)
        policy = self.policy.override(known.retry if known else None)
        try:
            return policy.override(json.loads(claimed.retry) if claimed.retry else None)
        except UNREADABLE as error:
            log.error("task %s: its retry policy is damaged, the general one holds: %s", text(claimed.id), error)
            return policy

    def _report(
        self,
        claimed: ClaimedTask,
        kind: str,
        outcome: Outcome,
        began_at: float,
        error: Mapping[str, str],
        delay_us: int = 0,
    ) -> Report:
        record: dict[str, Any] = {
            "worker": self.worker,
            "enqueued_at": claimed.enqueued_us,
            "started_at": int(began_at * 1_000_000) + claimed.clock_offset_us,
            "ended_at": monotonic_us() + claimed.clock_offset_us,
            "outcome": outcome,
            "error": error,
        }
        if kind in ("retrying", "crashed"):
            record["retry_delay"] = delay_us / 1_000_000
        if traced := trace_id(claimed.traceparent):
            record["trace_id"] = traced
        if claimed.logs:
            record["logs"] = list(claimed.logs)
        text = f"{error['type']}: {error['message']}".encode("utf-8", "backslashreplace")
        return Report(
            claimed,
            kind,
            delay_us,
            json.dumps(record).encode(),
            json.dumps({**error, "pattern": failure_fingerprint.pattern(error["message"])}).encode(),
            base64.b64encode(zlib.compress(text)),
            time.monotonic() - began_at,
            error["type"],
        )
