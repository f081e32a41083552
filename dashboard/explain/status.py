"""Explains the state of a task in one sentence: why it is not running, or how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from firmq.dashboard.overview import Snapshot
from firmq.dashboard.present import ago
from firmq.shared.domain.decode import moment
from firmq.shared.domain.duration import duration
from firmq.shared.domain.task import OnParentFailure, TaskDetail, TaskState, TaskSummary
from firmq.shared.stores.batches import Batch
from firmq.shared.stores.dependencies import Relative
from firmq.shared.stores.pauses import Pause
from firmq.shared.stores.workers import WorkerInfo

PATIENCE = timedelta(seconds=3)


@dataclass(frozen=True, slots=True)
class RelatedTasks:
    """The possible waits of a blocked task: its parents (None for an unknown one), its batch or the one before it."""

    parents: Sequence[Relative | None] = ()
    batch: Batch | None = None


def explain(task: TaskDetail, position: int | None, now: Snapshot, related: RelatedTasks | None = None) -> str:
    """Returns the sentence; `position` is the number of tasks before it in the queue, None if it is in none."""
    summary = task.summary
    if summary.corrupt:
        return f"It cannot run: {summary.corrupt}."
    waits: Mapping[TaskState, Callable[[], str]] = {
        TaskState.PENDING: lambda: _pending(task, position, now),
        TaskState.SCHEDULED: lambda: _due(summary, _scheduled(task), now),
        TaskState.RETRYING: lambda: _due(summary, f"Attempt {summary.attempt} failed and it will be retried", now),
        TaskState.BLOCKED: lambda: _blocked(task, related or RelatedTasks()),
        TaskState.RUNNING: lambda: _running(summary, task.cancel_requested, now.now()),
        TaskState.COMPLETED: lambda: f"It completed{_attempts(task)}.",
        TaskState.FAILED: lambda: _failed(task),
        TaskState.CANCELLED: lambda: f"It was cancelled{_because(task.cancel_requested)}.",
        TaskState.EXPIRED: lambda: "It expired: it was not started within its expires_in.",
    }
    return waits[summary.state]()


def _blocked(task: TaskDetail, related: RelatedTasks) -> str:
    batch = related.batch
    if task.after_batch:
        far = f", in which {batch.ended:,} of {batch.total:,} tasks have ended" if batch else ""
        sent = " and which is still being submitted" if batch and batch.status == "receiving" else ""
        return f"It waits for batch {task.after_batch}{far}{sent}."
    open_ones = [each for each in related.parents if each and each.state and not each.state.ended]
    if open_ones:
        return f"It waits for {_named(open_ones)}."
    dead = [each for each in related.parents if each and each.state is TaskState.FAILED]
    if dead and task.on_parent_failure is OnParentFailure.WAIT:
        return f"It waits for {_named(dead)}: retry or delete that dead letter."
    if batch and batch.terms.max_running:
        return f"It waits for its turn: batch {batch.terms.name or batch.id} has at most {_at_once(batch)}."
    return "All tasks that it waited for have ended; a worker or the housekeeper releases it within seconds."


def _at_once(batch: Batch) -> str:
    most = batch.terms.max_running or 0
    return f"{most:,} {'task' if most == 1 else 'tasks'} in the queues at a time (max_running)"


def _named(tasks: Sequence[Relative]) -> str:
    first = ", ".join(f"{each.type} {each.id} ({each.state})" for each in tasks[:3])
    return f"{first} and {len(tasks) - 3:,} more" if len(tasks) > 3 else first


def _pending(found: TaskDetail, position: int | None, now: Snapshot) -> str:
    task = found.summary
    queue = next((each for each in now.queues if each.name == task.queue), None)
    if queue is None:
        return f"Its queue {task.queue} is not registered: the housekeeper's recovery job registers it within minutes."
    if queue.paused is not None:
        return f"Its queue {task.queue} is paused{paused(queue.paused, now.now())}: resume it on the page Queues."
    if task.type in now.paused_types:
        return f"Its type is paused{paused(now.paused_types[task.type], now.now())}: resume it on the type's page."
    if not now.alive:
        return "No worker is alive: start one with firmq worker."
    takers = [each for each in now.workers if each.takes(task.queue)]
    if not takers:
        return f"No live worker takes from {task.queue}: check WORKER_QUEUES."
    held_back = _without_worker(found, now) or _throttled(found)
    return held_back or _in_wait_queue(task.queue, position, takers)


def _without_worker(found: TaskDetail, now: Snapshot) -> str | None:
    kind = found.summary.type
    if kind not in now.types:
        return f"No worker has registered the type {kind}: add the module of its handler to TASK_MODULES."
    if absent := now.types[kind]:
        return f"It waits for a worker that has its type: {absent}. Start one whose TASK_MODULES include its module."
    if found.throttled_by != "worker":
        return None
    if found.pinned_to:
        return (
            f"It waits for a worker with the version of {kind} that stored its steps: all of them are busy or restart."
        )
    if found.refusal:
        return f"It waits for a worker with another version of {kind}: its data was rejected ({found.refusal})."
    return f"It waits for a worker that has its type, {kind}: all of them are busy."


def _throttled(found: TaskDetail) -> str | None:
    if found.throttled_by:
        return (
            f"It is throttled by the limit {found.throttled_by}: "
            "see Limits for its usage and when the next task may start."
        )
    if found.throttled_by == "" and not found.fair_key:
        return f"It waits for the tasks of {found.summary.queue} with a lower score than {found.score}."
    if found.throttled_by == "":
        return f"It waits for the turn of tenant {found.fair_key}: tenants take turns within {found.summary.queue}."
    return None


def _in_wait_queue(queue: str, position: int | None, takers: Sequence[WorkerInfo]) -> str:
    before = "It is next" if not position else f"{position:,} {_tasks(position)} before it in {queue}"
    count = "1 worker takes" if len(takers) == 1 else f"{len(takers)} workers take"
    busy = ", all busy now" if all(each.running for each in takers) else ""
    if all(each.limit_reached(queue) for each in takers):
        busy = ", and all executors that QUEUE_EXECUTORS allows for it are busy"
    return f"{before}; {count} from this queue{busy}."


def _scheduled(task: TaskDetail) -> str:
    if task.summary.signal:
        return f"It waits for signal {task.summary.signal}, or the end of its time-out"
    return f"It sleeps in step {task.summary.awaits}" if task.summary.awaits else "It is scheduled"


def _due(task: TaskSummary, start: str, now: Snapshot) -> str:
    if task.due_at is None:
        return f"{start}, but its record has no due time."
    late = now.now() - task.due_at
    if late > PATIENCE:
        return (
            f"It was due {duration(late)} ago and is not in its queue yet: "
            "check that a housekeeper is running (firmq housekeeper)."
        )
    return f"{start}; it is due {ago(task.due_at, now.now())}."


def _running(task: TaskSummary, cancel: str | None, now: datetime) -> str:
    since = f" for {duration(now - task.started_at)}" if task.started_at else ""
    where = f" on {task.worker}" if task.worker else ""
    asked = "; its cancellation was requested" if cancel is not None else ""
    return f"It has been running{since}{where}{asked}."


def _failed(task: TaskDetail) -> str:
    error = task.summary.error
    return f"It failed permanently{f' with {error.type}' if error else ''}{_attempts(task)}: retry or delete it."


def _attempts(task: TaskDetail) -> str:
    """Returns how many attempts it took; one that ended in order to wait is none, and is continued by the next."""
    others = sum(not each.suspended for each in task.attempts)
    waits = task.summary.attempt - others if others < len(task.attempts) else 0  # the first of very many are dropped
    count = task.summary.attempt - waits
    took = f" after {count:,} attempts" if count > 1 else "" if waits else " on the first attempt"
    often = {1: "once", 2: "twice"}.get(waits, f"{waits:,} times")
    return f"{took}; it waited {often}" if waits else took


def paused(pause: Pause, now: datetime) -> str:
    """Returns the reason and the end of a pause, to follow a word such as "paused"."""
    end = f", and resumes {ago(moment(pause['until']), now)}" if "until" in pause else ""
    return f"{_because(pause.get('reason'))}{end}"


def _tasks(count: int) -> str:
    return "task is" if count == 1 else "tasks are"


def _because(reason: str | None) -> str:
    return f" ({reason})" if reason else ""
