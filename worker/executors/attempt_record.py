"""The record of an attempt, as far as every outcome has it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from firmq.shared.domain.traceparent import trace_id


def attempt_record(
    worker: str,
    app_version: str,
    enqueued_us: int,
    started_us: int,
    ended_us: int,
    traceparent: str | None,
    lines: Iterable[str],
) -> dict[str, Any]:
    """Returns its worker, its times by Redis' clock in microseconds, its trace and its log lines."""
    record: dict[str, Any] = {
        "worker": worker,
        "enqueued_at": enqueued_us,
        "started_at": started_us,
        "ended_at": ended_us,
    }
    if app_version:
        record["app_version"] = app_version
    if traced := trace_id(traceparent):
        record["trace_id"] = traced
    if logs := list(lines):
        record["logs"] = logs
    return record
