"""Submits tasks, cancels them, and reads the state of the queues."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from firmq.shared.domain import task_data
from firmq.shared.domain.clock import instant, instant_us, to_us
from firmq.shared.domain.task import NewTask, TaskState, Webhook, as_given
from firmq.shared.errors import BatchStopped, IllegalTransition, QueueFull, TaskNotFound
from firmq.shared.redis.client import text, translated
from firmq.shared.stores.pauses import Pause, Pauses, read_pause
from firmq.shared.stores.queue_register import QueueRegister

if TYPE_CHECKING:
    from firmq.shared.config.settings import Settings
    from firmq.shared.redis.scripts import Argument, Scripts, Steps

_First = Sequence[tuple[bytes, float]]
"""The first entry of an index with its score; empty for an empty index."""

_FOREIGN = 200
"""Foreign jobs that one step moves."""

TOO_MANY_QUEUES = (
    "queue {queue} does not exist, and there are as many queues as MAX_QUEUES allows: use one of those that exist "
    "(firmq queues), or raise MAX_QUEUES"
)
SHARE_OF_QUEUES = (
    "queue {queue} does not exist, and {client} has created half of MAX_QUEUES, which is the maximum for one API "
    "key: use one of those that exist (firmq queues), or raise MAX_QUEUES"
)

FULL = "queue {queue} is full of tasks ready to run: try again after Retry-After, or use another queue"
_FULL = 2
"""What `change.lua` returns for a task whose new queue is full."""

_INSTEAD = {
    TaskState.FAILED.value: "retry it, in the dashboard also with other data",
    TaskState.CANCELLED.value: "restore it first",
}
"""The advice instead of changing a task in this state."""

CHUNK = 250
"""Tasks that a submit script stores at once: 2 to 4 ms of Redis, so that other clients wait no longer."""


class SubmitOutcome(StrEnum):
    """What became of a submitted task, as `submit.lua` says."""

    STORED = "stored"
    """It is stored: by this call, or by the same call before."""
    KNOWN = "known"
    """It was stored before, at its place in the batch or by its row of the outbox."""
    EXISTING = "existing"
    """Another task holds its unique key, and was asked for."""
    CONFLICT = "conflict"
    """Another task holds its unique key."""
    FULL = "full"
    """Its queue is full."""
    TOO_MANY_QUEUES = "many"
    """Its queue would be one too many."""
    MISSING_PARENT = "missing"
    BATCH_CLOSED = "closed"
    """Its batch takes no more tasks."""
    DIFFERS = "differs"
    """The task at its place in the batch has other data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """Outcome of submitting one task.

    `id` and `state` are those of the task, or of the other one that holds its unique key, which has a `queue` when it
    was asked for. The state is None for a task that is not stored, or whose record is removed.
    """

    id: str
    outcome: SubmitOutcome = SubmitOutcome.STORED
    state: TaskState | None = None
    queue: str = ""
    missing_parent: str = ""

    @property
    def stored(self) -> bool:
        """Returns whether it is a new task that was stored."""
        return self.outcome is SubmitOutcome.STORED

    @property
    def existing(self) -> bool:
        """Returns whether it is another task that was asked for."""
        return self.outcome is SubmitOutcome.EXISTING


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInfo:
    """A summary of a queue. `oldest_at` is when its longest waiting pending task was enqueued.

    `due_at` is when the first of its scheduled and retrying tasks is due. Of the pending tasks `throttled` wait for a
    limit or for the turn of their tenant; `oldest_ready_at` is for the others. `foreign` jobs were put into its list by
    RQ programs: they are parked, and not counted as pending.
    """

    name: str
    weight: int
    pending: int
    scheduled: int
    retrying: int
    oldest_at: datetime | None
    paused: Pause | None
    throttled: int = 0
    oldest_ready_at: datetime | None = None
    foreign: int = 0
    due_at: datetime | None = None


class Queues:
    """The queues, as the gateway and the dashboard use them."""

    def __init__(
        self,
        scripts: Scripts,
        weights: Mapping[str, int],
        max_length: int = 0,
        max_queues: int = 0,
        default_weight: int = 1,
    ) -> None:
        """`weights` has the configured queues; 0 is no bound."""
        self.scripts = scripts
        self.register = QueueRegister(scripts.redis, weights, default_weight)
        self.max_length = max_length
        self.pauses = Pauses(scripts)
        self.bounds = f"{max_length} {max_queues} |{'|'.join(weights)}|" if max_queues else str(max_length)
        """How many pending tasks a queue may hold and how many queues there may be, as `submit.lua` takes it."""

    @classmethod
    def of(cls, scripts: Scripts, settings: Settings) -> Queues:
        """Returns the queues for the settings."""
        return cls(
            scripts,
            settings.queues,
            settings.max_queue_length,
            settings.max_queues,
            settings.default_weight,
        )

    def submit(self, tasks: Sequence[NewTask], *, stays: bool = False) -> list[Submitted]:
        """Stores tasks, each at most once however often this is repeated; returns the outcomes in their order.

        With `stays` a draining store takes them too, for a schedule that it holds.
        Raises StoreUnavailable when Redis does not answer: then a chunk may have been stored, and sending the same
        tasks (with the same ids) again is safe.
        """
        answer: list[Submitted] = []
        with translated():
            for chunk in chunks(tasks):
                answer += self._store(chunk, self.bounds + "!" if stays else self.bounds)
        return answer

    def _store(self, tasks: Sequence[NewTask], bounds: str) -> list[Submitted]:
        if len(tasks) == 1:
            return [self.scripts.run_accepted(submission(tasks[0], bounds))]
        fields = (field for task in tasks for field in submit_arguments(task))
        states = self.scripts.call_accepted("submit", bounds, *fields)
        return [read_submitted(task.id, state) for task, state in zip(tasks, states, strict=True)]

    def cancel(self, task_id: str, reason: str) -> TaskState:
        """Cancels a waiting task at once, or requests its worker to stop a running one; returns its state now.

        Raises TaskNotFound, and IllegalTransition when the task has ended otherwise.
        """
        with translated():
            state, happened = cancel(self.scripts, task_id, reason)
        if happened == "unknown":
            raise TaskNotFound(id=task_id)
        if happened == "ended":
            raise IllegalTransition(
                f"the task is {state}: only a task that has not ended can be cancelled", state=state
            )
        return TaskState.CANCELLED if happened == "cancelled" else TaskState.RUNNING

    def change(
        self,
        task_id: str,
        *,
        queue: str | None = None,
        delay: timedelta | None = None,
        run_at: datetime | None = None,
        data: str | None = None,
        score: float | None = None,
    ) -> None:
        """Changes a task that waits: its queue, its time, its data (JSON text as stored), its score.

        Raises TaskNotFound, IllegalTransition when it does not wait, and QueueFull.
        """
        with translated():
            new_score = "" if score is None else repr(score)
            arguments = queue or "", _moment(delay, run_at), data or "", self.max_length, new_score
            found, done = self.scripts.call_answered("change", task_id, *arguments)
        if not found:
            raise TaskNotFound(id=task_id)
        if done == _FULL:
            raise QueueFull(FULL.format(queue=queue))
        if not done:
            state = text(found)
            hint = (
                "cancel it, or wait for its end"
                if state == TaskState.RUNNING
                else _INSTEAD.get(state, "submit another")
            )
            raise IllegalTransition(f"the task is {state}: only a waiting task can be changed; {hint}", state=state)

    def restore(self, task_id: str) -> None:
        """Restores a task that was cancelled or deleted; one that runs and is to be cancelled is not cancelled.

        Raises TaskNotFound, IllegalTransition when it is none of these, and BatchStopped.
        """
        with translated():
            found, done, *stopped = self.scripts.call_answered("restore", task_id)
        if not (found or done):
            raise TaskNotFound(id=task_id)
        if stopped:
            raise BatchStopped(f"batch {text(stopped[0])} of this task was stopped: submit it again", state=text(found))
        if not done:
            state = text(found)
            rule = (
                "tasks of RQ jobs and damaged records cannot be restored; enqueue it again"
                if state == TaskState.CANCELLED
                else "only a cancelled or deleted task can be restored"
            )
            raise IllegalTransition(f"the task is {state}: {rule}", state=state)

    def run_now(self, task_id: str) -> None:
        """Moves a scheduled or retrying task to its queue. Raises TaskNotFound, else IllegalTransition."""
        with translated():
            state, done = run_now(self.scripts, task_id)
        if not state:
            raise TaskNotFound(id=task_id)
        if not done:
            raise IllegalTransition(
                f"the task is {state}: only a scheduled or retrying task can be run now", state=state
            )

    def pause(self, queue: str, reason: str, by: str = "", *, until: datetime | None = None) -> None:
        """Stops claims from this queue until it is resumed; running tasks continue. Raises ValueError."""
        self.pauses.pause(queue, reason, by, until=until)

    def resume(self, queue: str) -> None:
        """Allows claims from this queue again."""
        self.pauses.resume(queue)

    def move_foreign(self, queue: str, to: str) -> int:
        """Moves the foreign jobs parked in `queue` to the list of `to`, for RQ's workers; returns how many.

        `to` must not be a queue of this system, whose workers would park them again.
        """
        moved, looked = 0, _FOREIGN
        with translated():
            while looked == _FOREIGN:
                done, looked = self.scripts.call("foreign_move", queue, to, _FOREIGN)
                moved += done
        return moved

    def overview(self) -> list[QueueInfo]:
        """Returns all queues by weight, the heaviest first, in one round trip."""
        names = sorted(self.register, key=lambda name: -self.register.weight(name))
        keys = self.scripts.keys
        with translated(), self.scripts.redis.pipeline(transaction=False) as pipeline:
            pipeline.hgetall(keys.PAUSED)
            for name in names:
                pipeline.zcard(keys.pending(name))
                pipeline.zcard(keys.throttled(name))
                pipeline.zcard(keys.scheduled(name))
                pipeline.zcard(keys.retrying(name))
                pipeline.zcard(keys.foreign(name))
                for key in (keys.pending, keys.throttled, keys.scheduled, keys.retrying):
                    pipeline.zrange(key(name), 0, 0, withscores=True)
            paused, *numbers = pipeline.execute()
        rows = zip(*[iter(numbers)] * 9, strict=True)
        return [self._info(name, paused.get(name.encode()), *row) for name, row in zip(names, rows, strict=True)]

    def _info(
        self, name: str, pause: bytes | None, pending: int, throttled: int, scheduled: int, retrying: int, foreign: int,
        *first: _First,
    ) -> QueueInfo:  # fmt: skip
        """Returns a queue from its numbers, and the first entries of its indexes in the same order."""
        ready, waiting, due, retry = first
        return QueueInfo(
            name=name,
            weight=self.register.weight(name),
            pending=pending + throttled,
            throttled=throttled,
            scheduled=scheduled,
            retrying=retrying,
            foreign=foreign,
            oldest_at=_earliest(ready, waiting),
            oldest_ready_at=_earliest(ready),
            due_at=_earliest(due, retry),
            paused=read_pause(pause) if pause is not None else None,
        )


def _earliest(*indexes: _First) -> datetime | None:
    return min((instant(each[0][1]) for each in indexes if each), default=None)


def submission(task: NewTask, bounds: str) -> Steps[Submitted]:
    """Yields the script calls that store a task: the shorter script first for one without relations, where it may.

    `bounds` as in `Queues`.
    """
    arguments = submit_arguments(task)
    if is_plain(arguments):
        state = yield "submit_one", (bounds, *arguments[:-1])
        if state is not None:
            return read_submitted(task.id, state)
    [state] = yield "submit", (bounds, *arguments)
    return read_submitted(task.id, state)


def read_submitted(task_id: str, answer: bytes | Sequence[bytes]) -> Submitted:
    """Returns the outcome of a task from the answer of `submit.lua`."""
    if isinstance(answer, bytes):
        return Submitted(id=task_id, state=STATES[answer])
    outcome, *about = SubmitOutcome(text(answer[0])), *answer[1:]
    match outcome:
        case SubmitOutcome.EXISTING | SubmitOutcome.CONFLICT:
            holder, state, *queue = about
            known = STATES.get(state)
            return Submitted(id=text(holder), outcome=outcome, state=known, queue=text(queue[0]) if queue else "")
        case SubmitOutcome.KNOWN:
            return Submitted(id=task_id, outcome=outcome, state=STATES.get(about[0]))
        case SubmitOutcome.MISSING_PARENT:
            return Submitted(id=task_id, outcome=outcome, missing_parent=text(about[0]))
    return Submitted(id=task_id, outcome=outcome)


STATES: Mapping[object, TaskState] = {state.encode(): state for state in TaskState}
"""States by the answers of `submit.lua`."""


def chunks(tasks: Sequence[NewTask]) -> Iterator[list[NewTask]]:
    """Yields chunks that one step may store; looking up a parent costs as much as a task."""
    chunk: list[NewTask] = []
    cost = 0
    for task in tasks:
        cost += 1 + len(task.parents)
        if chunk and cost > CHUNK:
            yield chunk
            chunk, cost = [], 1 + len(task.parents)
        chunk.append(task)
    if chunk:
        yield chunk


def is_plain(arguments: Sequence[Argument]) -> bool:
    """Returns whether a task has no unique key, limit key, tenant, parents, batch or the like."""
    extra, terms = arguments[7:9]
    return not terms and not str(extra).startswith('["relations",')


def submit_arguments(task: NewTask) -> tuple[Argument, ...]:
    """Returns a task as arguments of `submit.lua`."""
    return (
        task.id,
        task.queue,
        task.type,
        task_data.encode(task.type, task.data),
        _moment(task.delay, task.run_at),
        _moment(task.expires_in, None),
        json.dumps(task.tags) if task.tags else "",
        _extra(task),
        _batch_terms(task),
    )


def _moment(after: timedelta | None, at: datetime | None) -> str:
    if after is not None:
        return f"+{to_us(after)}"
    return str(instant_us(at)) if at is not None else ""


_ENCODER = json.JSONEncoder(separators=(",", ":"))
"""Created once: creating an encoder takes longer than encoding."""


def _extra(task: NewTask) -> str:
    found = _dependency_arguments(task)
    if task.timeout:
        seconds = task.timeout.total_seconds()
        found += "time_limit", str(seconds), "timeout", str(math.ceil(seconds))
    if task.retry:
        found += "retry", json.dumps(task.retry)
    if task.meta:
        found += "meta", json.dumps(task.meta)
    for name, value in as_given(task).items():
        if value is not None:
            found += name, str(value)
    if task.submitted_by:
        found += "submitted_by", task.submitted_by
    return _ENCODER.encode(found) if found else ""


def _dependency_arguments(task: NewTask) -> list[str]:
    """Returns the relations of a task; `relations` first, by which the scripts detect them."""
    found: list[str] = []
    if task.parents:
        found += "parents", json.dumps([[each.task_id, each.on] for each in task.parents])
        found += "on_parent_failure", task.on_parent_failure
    if task.batch:
        found += "batch", task.batch.batch_id, "batch_index", str(task.batch.index)
    if task.after_batch:
        found += "after_batch", task.after_batch
    if task.webhook:
        found += "webhook", _webhook_argument(task.webhook)
    return ["relations", "1", *found] if found else found


def _webhook_argument(webhook: Webhook) -> str:
    about = {"url": webhook.url, "events": webhook.events, "retry": webhook.retry}
    return json.dumps({name: value for name, value in about.items() if value})


def _batch_terms(task: NewTask) -> str:
    terms: dict[str, str | float] = {}
    if task.unique:
        until = task.unique.until
        terms["unique"] = f"{task.type}:{task.unique.key}"
        terms["until"] = until if isinstance(until, str) else str(to_us(until) // 1000)
        terms["conflict"] = task.unique.on_conflict
        if task.unique.client:
            terms["client"], terms["by"] = task.unique.client, task.unique.by
    terms |= {name: value for name, value in as_given(task).items() if value is not None}
    return json.dumps(terms) if terms else ""


def submission_check(scripts: Scripts) -> None:
    """Writes under the same conditions as a submission; raises a submission's errors."""
    scripts.call_accepted("submission_check")


def cancel(scripts: Scripts, task_id: str, reason: str) -> tuple[str, str]:
    """Cancels a task; returns the state found and the outcome: cancelled, requested, ended or unknown."""
    state, happened = scripts.call_answered("cancel", task_id, reason)
    return text(state), text(happened)


def run_now(scripts: Scripts, task_id: str) -> tuple[str, bool]:
    """Enqueues a scheduled or retrying task at once; returns the state found and whether it was moved."""
    state, done = scripts.call_answered("run_now", task_id)
    return text(state), bool(done)
