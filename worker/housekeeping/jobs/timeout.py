"""timeout: ends attempts whose lease has ended, removes silent workers, bounds webhook deliveries."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from datetime import timedelta

from firmq.shared.domain.clock import to_us
from firmq.shared.domain.task import Outcome
from firmq.shared.domain.traceparent import Subject, is_sampled, read_traceparent, trace_id
from firmq.shared.observability.tracing import Tracing
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores import maintenance
from firmq.shared.stores.limits import Limits
from firmq.shared.stores.locks import HeldLock
from firmq.shared.stores.maintenance import Reaped
from firmq.shared.stores.workers import Workers
from firmq.worker.housekeeping.delivery_share import DeliveryShare
from firmq.worker.housekeeping.registry import RunResult, until_done

log = logging.getLogger(__name__)

BATCH = 200
ROUNDS = 50


class Timeout:
    """Tasks of a dead worker run again, or are dead-lettered as poison tasks."""

    name = "timeout"

    def __init__(
        self,
        scripts: Scripts,
        workers: Workers,
        queues: Iterable[str],
        interval: timedelta,
        max_crashes: int,
        lease: timedelta,
        tracing: Tracing,
    ) -> None:
        """`lease` is the workers'; a pause of a third of it and three intervals counts as an outage."""
        self.scripts = scripts
        self.workers = workers
        self.share = DeliveryShare(Limits(scripts), workers)
        self.queues = queues
        self.interval = interval
        self.max_crashes = max_crashes
        self.lease_us = to_us(lease)
        self.patience_us = to_us(max(lease / 3, 3 * interval))
        self.tracing = tracing

    def run(self, held: HeldLock) -> RunResult:
        ended = until_done(held, lambda: self._reap(held), BATCH, ROUNDS)
        self.workers.reap(self.queues)
        self.share.keep()
        return ended

    def _reap(self, held: HeldLock) -> int:
        reaped = maintenance.reap(
            self.scripts, BATCH, self.max_crashes, held.fencing_token, self.lease_us, self.patience_us
        )
        for each in reaped:
            traceparent = read_traceparent(each.meta)
            _log(each, traceparent)
            if self.tracing.on and is_sampled(traceparent):
                self._tell(each, traceparent)
        return len(reaped)

    def _tell(self, lost: Reaped, traceparent: str | None) -> None:
        """Reports the span of an attempt whose worker died."""
        subject = Subject(id=lost.id, type=lost.type, queue=lost.queue, attempt=lost.attempt)
        now = time.time_ns()
        span = self.tracing.attempt(subject, traceparent, now - lost.ran_us * 1000)
        span.set_attribute("messaging.client.id", lost.worker)
        error = {"type": "LeaseLost", "message": f"worker {lost.worker} stopped extending its lease"}
        self.tracing.end_attempt(span, subject, Outcome.LOST, lost.state, error, now)


_EVENTS = {"pending": (logging.WARNING, "🔄 retry at once"), "failed": (logging.ERROR, "dead letter (poison task)")}


def _log(lost: Reaped, traceparent: str | None) -> None:
    """Logs the outcome of an attempt, as its worker would have (`firmq.worker.engine.failure_log`)."""
    level, event = _EVENTS.get(lost.state, (logging.INFO, "attempt cancelled"))
    fields = {
        "task_id": lost.id,
        "task_type": lost.type,
        "queue": lost.queue,
        "attempt": lost.attempt,
        "error_type": "PoisonTask" if lost.state == "failed" else "LeaseLost",
        "outcome": Outcome.LOST,
        "state": lost.state,
        "retry_delay": 0.0 if lost.state == "pending" else None,
        "trace_id": trace_id(traceparent),
    }
    line = "%s: task %s (%s), attempt %d; the lease of worker %s ended"
    log.log(level, line, event, lost.id, lost.type, lost.attempt, lost.worker, extra=fields)
