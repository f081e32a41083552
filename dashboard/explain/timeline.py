"""Builds the timeline of a task: its waits, runs and pauses, and its handler's steps. Pure.

Most tasks wait much longer than they run. If waiting takes more than half of the time, running and waiting share the
width in proportion to the square roots of their durations: attempts stay visible, and longer bars mean longer times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise

from firmq.shared.domain.task import Attempt, TaskDetail, TaskState

MOST_ATTEMPTS = 12
"""Attempts that are shown, the latest ones."""
SHARE_OF_WAITING = 0.5
NOTHING = timedelta()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar: `left` and `width` in percent; `kind` is wait, run, inner or mark; `attempt` links to the attempt."""

    name: str
    kind: str
    tone: str
    start: datetime
    end: datetime
    attempt: int | None = None
    unfinished: bool = False
    left: float = 0.0
    width: float = 0.0

    @property
    def took(self) -> timedelta:
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The bars, and how many attempts and spans they leave out."""

    bars: tuple[Bar, ...]
    shortened: bool
    earlier: int
    left_out: int


def timeline(task: TaskDetail, now: datetime) -> Timeline | None:
    """Returns the timeline of a task; None if its record has no time of submission."""
    begun = task.summary.created_at
    if begun is None:
        return None
    shown = [each for each in task.attempts if each.started_at][-MOST_ATTEMPTS:]
    bars = list(_bars(task, begun, shown, now))
    scale = Scale(bars)
    return Timeline(
        bars=tuple(scale.place(bar) for bar in bars),
        shortened=scale.shortened,
        earlier=len(task.attempts) - len(shown),
        left_out=sum(each.spans_left_out for each in shown),
    )


def _bars(task: TaskDetail, begun: datetime, attempts: Sequence[Attempt], now: datetime) -> Iterator[Bar]:
    yield Bar(name="submitted", kind="mark", tone="calm", start=begun, end=begun)
    before: Attempt | None = None
    free_since = begun
    for attempt in attempts:
        yield from _before(attempt, before, free_since)
        yield from _attempt(attempt, now)
        before, free_since = attempt, attempt.ended_at or now
    yield from _end(task, free_since, now)


def _before(attempt: Attempt, before: Attempt | None, since: datetime) -> Iterator[Bar]:
    """Yields the bars between the end of the previous attempt, or the submission, and the start of this one."""
    started = attempt.started_at or since
    queued = min(max(attempt.enqueued_at or since, since), started)
    if queued - since > timedelta(milliseconds=1):
        yield Bar(name=_pause(before), kind="wait", tone="calm", start=since, end=queued)
    if started > queued:
        yield Bar(name="in the queue", kind="wait", tone="info", start=queued, end=started)


def _pause(before: Attempt | None) -> str:
    if before is None:
        return "scheduled"
    if before.suspended:
        return "suspended"
    return "pause before the next attempt" if before.retry_delay is not None else "among the dead letters"


def _attempt(attempt: Attempt, now: datetime) -> Iterator[Bar]:
    start = attempt.started_at or now
    end = max(start, attempt.ended_at or now)
    outcome = attempt.outcome.value if attempt.outcome else "running"
    if attempt.suspended:
        outcome = "suspended"
    tone = {"completed": "good", "suspended": "good", "running": "info"}.get(outcome, "bad")
    name = f"attempt {attempt.number}: {outcome.replace('_', ' ')}"
    unfinished = attempt.ended_at is None
    yield Bar(name=name, kind="run", tone=tone, start=start, end=end, attempt=attempt.number, unfinished=unfinished)
    for span in sorted(attempt.spans, key=lambda each: each.after):
        began = start + _within(span.after, end - start)
        ended = began + _within(span.took, end - began)
        yield Bar(name=span.name, kind="inner", tone="bad" if span.failed else "calm", start=began, end=ended)


def _within(part: timedelta, whole: timedelta) -> timedelta:
    """Returns the part, bounded to the whole: a span never exceeds its attempt."""
    return max(NOTHING, min(part, whole))


def _end(task: TaskDetail, since: datetime, now: datetime) -> Iterator[Bar]:
    summary = task.summary
    if summary.state in (TaskState.PENDING, TaskState.BLOCKED, TaskState.SCHEDULED, TaskState.RETRYING):
        names = {TaskState.PENDING: "in the queue", TaskState.RETRYING: "pause before the next attempt"}
        name = names.get(summary.state, f"{summary.state.value} until now")
        yield Bar(name=name, kind="wait", tone="info", start=since, end=max(since, now), unfinished=True)
    elif summary.state is not TaskState.RUNNING:
        at = max(since, summary.ended_at or since)
        tones = {TaskState.COMPLETED: "good", TaskState.FAILED: "bad"}
        name = "dead letter" if summary.state is TaskState.FAILED else summary.state.value
        if at - since > timedelta(seconds=1):
            yield Bar(name="waited", kind="wait", tone="calm", start=since, end=at)
        yield Bar(name=name, kind="mark", tone=tones.get(summary.state, "calm"), start=at, end=at)


class Scale:
    """The position of each moment on the line, in percent."""

    def __init__(self, bars: Sequence[Bar]) -> None:
        moments = sorted({moment for bar in bars for moment in (bar.start, bar.end)})
        runs = [(bar.start, bar.end) for bar in bars if bar.kind == "run"]
        steps = [
            (earlier, later, any(start <= earlier and later <= end for start, end in runs))
            for earlier, later in pairwise(moments)
        ]
        waited = sum((later - earlier for earlier, later, running in steps if not running), NOTHING)
        ran = sum((later - earlier for earlier, later, running in steps if running), NOTHING)
        self.shortened = ran > NOTHING and waited > (waited + ran) * SHARE_OF_WAITING
        # Percent per second of running and of waiting.
        whole = max((waited + ran).total_seconds(), 1e-6)
        quick = slow = 100 / whole
        if self.shortened:
            running_root, waiting_root = ran.total_seconds() ** 0.5, waited.total_seconds() ** 0.5
            share = running_root / (running_root + waiting_root)
            quick = 100 * share / ran.total_seconds()
            slow = 100 * (1 - share) / waited.total_seconds()
        self.at = dict.fromkeys(moments[:1], 0.0)
        for earlier, later, running in steps:
            self.at[later] = self.at[earlier] + (later - earlier).total_seconds() * (quick if running else slow)

    def place(self, bar: Bar) -> Bar:
        """Returns the bar with its position."""
        left, right = self.at[bar.start], self.at[bar.end]
        return replace(bar, left=round(left, 3), width=round(right - left, 3))
