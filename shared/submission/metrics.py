"""Metrics of direct submissions, for programs that use OpenTelemetry's metrics; others load and keep nothing."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from firmq.shared.submission.answers import Accepted
from firmq.shared.submission.problems import Problem

if TYPE_CHECKING:
    from opentelemetry import metrics

# The names and attributes of OpenTelemetry's conventions for messaging.
SENT, DURATION = "messaging.client.sent.messages", "messaging.client.operation.duration"
_COMMON = {"messaging.system": "firmq", "messaging.operation.name": "send", "messaging.operation.type": "send"}
_SECONDS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)


def record(begun: float, outcomes: Sequence[Accepted | Exception]) -> None:
    """Records a call that submitted tasks and began at `begun` (time.perf_counter)."""
    if "opentelemetry.metrics" not in sys.modules:
        return
    sent, duration = _instruments()
    counts = Counter(map(_queue_and_error, outcomes))
    for about, count in counts.items():
        sent.add(count, _attributes(*about))
    if len(counts) == 1:
        duration.record(time.perf_counter() - begun, _attributes(*next(iter(counts))))
    elif counts:
        duration.record(time.perf_counter() - begun, _COMMON)


@cache
def _instruments() -> tuple[metrics.Counter, metrics.Histogram]:
    from opentelemetry import metrics

    # They are the program's own as soon as it has a provider, and do nothing before.
    meter = metrics.get_meter("firmq")
    return (
        meter.create_counter(SENT, "{message}", "Tasks that this program submitted or tried to."),
        meter.create_histogram(
            DURATION,
            "s",
            "Duration of a call that submits, with its retries.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        ),
    )


def _queue_and_error(outcome: Accepted | Exception) -> tuple[str, str]:
    if isinstance(outcome, Accepted):
        return outcome.queue, ""
    return "", outcome.type.rpartition("/")[2] if isinstance(outcome, Problem) else type(outcome).__name__


def _attributes(queue: str, error: str) -> dict[str, str]:
    destination = {"messaging.destination.name": queue} if queue else {}
    return {**_COMMON, **destination, **({"error.type": error} if error else {})}
