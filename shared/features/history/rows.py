"""An ended task in the history: a row with its whole record, and its part in the statistics."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from firmq.shared.domain import histogram
from firmq.shared.domain.clock import instant_us
from firmq.shared.domain.decode import UNREADABLE, whole, whole_or_none
from firmq.shared.domain.task import TaskState
from firmq.shared.features.history.unarchived import EndedTask

COUNTS = ("completed", "failed", "cancelled", "expired", "retried", "crashed")
GRAINS = (60, 3600, 86400)
"""Lengths of the periods of the statistics, in seconds."""
_LEFT_OUT = frozenset({"token", "begun", "status", "timeout", "result", "sent_back"})
"""Fields without meaning for an ended task, or that are stored beside the record."""

Row = dict[str, Any]


@dataclass(slots=True)
class Totals:
    """How many tasks ended in which way, and histograms of how long they waited and ran."""

    counts: Counter[str] = field(default_factory=Counter)
    wait: histogram.Histogram = histogram.EMPTY
    run: histogram.Histogram = histogram.EMPTY

    @property
    def ended(self) -> int:
        """Returns the tasks that a worker ended."""
        return self.counts["completed"] + self.counts["failed"]

    @property
    def failure_rate(self) -> float:
        return self.counts["failed"] / self.ended if self.ended else 0.0


Key = tuple[int, int, str, str, str]
"""Length and start of a period, type, queue and version."""


def row_of(end: EndedTask) -> Row | None:
    """Returns the row of an ended task; None when its record cannot be read."""
    try:
        return _row(end)
    except (*UNREADABLE, UnicodeError):
        return None


def _row(end: EndedTask) -> Row | None:
    fields = end.fields
    state = TaskState(fields["state"].decode())
    if not state.ended:
        return None
    task_type = fields["description"].decode()
    attempts = whole(fields.get("attempt", 0))
    ended_at = _us(fields.get("ended_at")) or int(float(end.score))
    last = _object(fields.get(f"attempt:{attempts}"))
    error = _object(fields.get("error")) if state is TaskState.FAILED else {}
    enqueued_at, started_at = last.get("enqueued_at"), last.get("started_at")
    return {
        "task_id": end.id,
        "ended_at": ended_at,
        "state": state.value,
        "type": _clean(task_type, 100),
        "queue": _clean(fields["origin"].decode(), 64),
        "version": _clean(str(last.get("app_version") or ""), 64),
        "worker": _clean(str(last.get("worker") or ""), 200),
        "created_at": _us(fields.get("created_at")),
        "wait_us": _between(enqueued_at, started_at),
        "run_us": _between(started_at, last.get("ended_at")),
        "attempts": attempts,
        "error": _clean(f"{error.get('type', '')}: {error.get('message', '')}", 200) if error else None,
        "cause": _cause(task_type, error) if state is TaskState.FAILED else None,
        "record": json.dumps(
            {name: value.decode("utf-8", "surrogateescape") for name, value in fields.items() if name not in _LEFT_OUT},
            separators=(",", ":"),
        ),
        "result": end.result.decode("ascii") if end.result else None,
    }


def tags_of(row: Row, end: EndedTask) -> list[Row]:
    """Returns the rows by which an ended task is found by its tags."""
    try:
        tags = json.loads(end.fields.get("tags", b"[]"))
        named = dict.fromkeys(_clean(tag, 64) for tag in tags if isinstance(tag, str))
    except UNREADABLE:
        return []
    return [{"tag": tag, "ended_at": row["ended_at"], "task_id": row["task_id"]} for tag in named]


def statistics(rows: Iterable[tuple[Row, EndedTask]]) -> dict[Key, Totals]:
    """Returns the contribution of these tasks to the periods in which they ended."""
    found: dict[Key, Totals] = defaultdict(Totals)
    for row, end in rows:
        for seconds in GRAINS:
            sums = found[(seconds, _start(row, seconds), row["type"], row["queue"], row["version"])]
            sums.counts[row["state"]] += 1
            sums.counts["retried"] += whole_or_none(end.fields.get("failures")) or 0
            sums.counts["crashed"] += whole_or_none(end.fields.get("crashes")) or 0
            sums.wait += _histogram(row["wait_us"])
            sums.run += _histogram(row["run_us"])
    return found


def _histogram(us: int | None) -> histogram.Histogram:
    return histogram.EMPTY if us is None else histogram.of(us / 1e6)


def causes(rows: Iterable[Row]) -> dict[tuple[int, int, str, str], tuple[str, int]]:
    """Returns the failures of each period, type and cause: an error of that cause, and how many there were."""
    found: dict[tuple[int, int, str, str], tuple[str, int]] = {}
    for row in rows:
        for seconds in GRAINS if row["cause"] else ():
            key = (seconds, _start(row, seconds), row["type"], row["cause"])
            found[key] = (row["error"] or "", found.get(key, ("", 0))[1] + 1)
    return found


def _start(row: Row, seconds: int) -> int:
    return int(row["ended_at"]) // 1_000_000 // seconds * seconds


def _object(value: bytes | None) -> Mapping[str, Any]:
    """Returns an object that a record holds; an empty one for anything else."""
    try:
        found = json.loads(value or b"{}")
    except UNREADABLE:
        return {}
    return found if isinstance(found, dict) else {}


def _between(since: object, until: object) -> int | None:
    """Returns the microseconds from one instant to another; None where one is unknown (0)."""
    if not since or not isinstance(since, int | float) or not isinstance(until, int | float):
        return None
    return max(0, int(until - since))


def _us(stamp: bytes | None) -> int | None:
    """Returns an instant in RQ's format as microseconds."""
    if not stamp:
        return None
    at = datetime.fromisoformat(stamp.decode())
    return instant_us(at if at.tzinfo else at.replace(tzinfo=UTC))


def _cause(task_type: str, error: Mapping[str, Any]) -> str:
    """Returns the failure fingerprint, as `fingerprint_of` in `_failure_groups.lua` makes it."""
    words = [error.get(name) for name in ("type", "place", "pattern")]
    text = "\n".join([task_type, *(word if isinstance(word, str) else "" for word in words)])
    digest = hashlib.sha1(text.encode("utf-8", "surrogateescape"), usedforsecurity=False)
    return digest.hexdigest()[:16] if error else "unreadable"


def _clean(text: str, longest: int) -> str:
    """Returns a text that every database takes."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()[:longest]
