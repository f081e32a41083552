"""Putting tasks in, taking them out again before they run, and what the queues look like."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from shared.domain import payload
from shared.domain.clock import instant, instant_us, to_us
from shared.domain.decode import UNREADABLE, moment
from shared.domain.task import NewTask, TaskState, Webhook
from shared.errors import IllegalTransition, TaskNotFound
from shared.redis import keys
from shared.redis.client import text, translated

if TYPE_CHECKING:
    from shared.redis.scripts import Argument, Scripts

_FOREIGN = 200
"""Jobs of RQ programs that one step moves."""

CHUNK = 250
"""Tasks a submit script stores at once: 2 to 4 ms of Redis, so that nobody else waits longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """What became of one task: its state, or None when it was not taken.

    When another task holds its unique key, `id` and `state` are that one's (None when its record is gone), and it is
    said whether that was asked for (`existing`, with its `queue`) or is a refusal (`conflict`). Else it was not taken
    because a parent does not exist, its batch takes no more, the task at its place in the batch `differs`, or its queue
    had no room. `known` means that it was there before, at its place in the batch; `removed` that its record has gone
    since.
    """

    id: str
    state: TaskState | None
    queue: str = ""
    existing: bool = False
    conflict: bool = False
    missing_parent: str | None = None
    batch_closed: bool = False
    differs: bool = False
    known: bool = False
    removed: bool = False

    @property
    def full(self) -> bool:
        """Its queue had no room."""
        return self.state is None and not self._explained

    @property
    def stored(self) -> bool:
        """It is a new task, and kept."""
        return self.state is not None and not self._explained

    @property
    def _explained(self) -> bool:
        other = self.existing or self.conflict or self.missing_parent is not None
        return other or self.batch_closed or self.differs or self.known


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInfo:
    """A queue at a glance. `oldest_at` is when its longest waiting pending task was enqueued.

    Of the pending ones `throttled` wait for a limit or for the turn of their tenant; `oldest_ready_at` is of the
    others. `foreign` jobs were put into its list by RQ programs: they are parked, and not among the pending ones.
    """

    name: str
    weight: int
    pending: int
    scheduled: int
    retrying: int
    oldest_at: datetime | None
    paused: Mapping[str, str] | None
    throttled: int = 0
    oldest_ready_at: datetime | None = None
    foreign: int = 0


class Queues:
    """The queues, one per priority, as the gateway and the dashboard use them."""

    def __init__(self, scripts: Scripts, weights: Mapping[str, int], max_length: int = 0) -> None:
        self.scripts = scripts
        self.weights = weights
        self.max_length = max_length

    def submit(self, tasks: Sequence[NewTask]) -> list[Submitted]:
        """Stores tasks, each at most once however often this is sent; the answer is in their order.

        Raises StoreUnavailable when Redis does not answer: then a chunk may have been stored, and sending the same
        tasks (with the same ids) again is safe.
        """
        answer: list[Submitted] = []
        with translated():
            for chunk in _chunks(tasks):
                states = self._store([submit_arguments(task) for task in chunk])
                answer += (read_submitted(task.id, state) for task, state in zip(chunk, states, strict=True))
        return answer

    def _store(self, tasks: list[tuple[Argument, ...]]) -> list[bytes | list[bytes]]:
        """What `submit.lua` says of each; a task alone that nothing ties to others takes the short way."""
        if len(tasks) == 1 and is_plain(tasks[0]):
            state = self.scripts.submit_one(self.max_length, tasks[0][:-1])
            if state is not None:
                return [state]
        return self.scripts.submit(self.max_length, tasks)

    def cancel(self, task_id: str, reason: str) -> TaskState:
        """Cancels a waiting task at once, asks the worker of a running one to stop it; the state it is in now.

        Raises TaskNotFound, and IllegalTransition when the task has ended otherwise.
        """
        with translated():
            state, happened = self.scripts.cancel(task_id, reason)
        if happened == "unknown":
            raise TaskNotFound(id=task_id)
        if happened == "ended":
            raise IllegalTransition(
                f"the task is {state}: only a task that has not ended can be cancelled", state=state
            )
        return TaskState.CANCELLED if happened == "cancelled" else TaskState.RUNNING

    def redeliver(self, delivery_id: str) -> str:
        """Sends a webhook's delivery that has ended again; the id of the one that is on its way now.

        Raises TaskNotFound when there is no such delivery, and IllegalTransition when it has not ended, or when the
        task that it tells of has been removed.
        """
        with translated():
            state, on_its_way = self.scripts.redeliver(delivery_id)
        if not state:
            raise TaskNotFound(id=delivery_id)
        if not on_its_way:
            ended = TaskState(state).ended
            rule = "the task that it tells of has been removed" if ended else "it is on its way already"
            raise IllegalTransition(f"the delivery is {state}: {rule}", state=state)
        return on_its_way

    def pause(self, queue: str, reason: str, by: str = "") -> None:
        """Workers take nothing more from this queue until it is resumed; what runs goes on."""
        with translated():
            about = {"reason": reason, "by": by, "at": instant(self.scripts.now_us()).isoformat()}
            self.scripts.queue_pause(queue, json.dumps(about))

    def resume(self, queue: str) -> None:
        """Workers take tasks from this queue again."""
        with translated():
            self.scripts.queue_pause(queue, "")

    def move_foreign(self, queue: str, to: str) -> int:
        """Puts the jobs that RQ programs left in `queue` into the list of `to`, for RQ's workers; returns how many.

        `to` must be no queue of this system, whose workers would park them again.
        """
        moved, looked = 0, _FOREIGN
        with translated():
            while looked == _FOREIGN:
                done, looked = self.scripts.foreign_move(queue, to, _FOREIGN)
                moved += done
        return moved

    def overview(self) -> list[QueueInfo]:
        """All queues by weight, the heaviest first, in one round trip."""
        names = sorted(self.weights, key=lambda name: -self.weights[name])
        with translated(), self.scripts.redis.pipeline(transaction=False) as pipeline:
            pipeline.hgetall(keys.PAUSED)
            for name in names:
                pipeline.zcard(keys.pending(name))
                pipeline.zcard(keys.throttled(name))
                pipeline.zcard(keys.scheduled(name))
                pipeline.zcard(keys.retrying(name))
                pipeline.zcard(keys.foreign(name))
                pipeline.zrange(keys.pending(name), 0, 0, withscores=True)
                pipeline.zrange(keys.throttled(name), 0, 0, withscores=True)
            paused, *numbers = pipeline.execute()
        rows = zip(*[iter(numbers)] * 7, strict=True)
        return [
            QueueInfo(
                name=name,
                weight=self.weights[name],
                pending=pending + throttled,
                throttled=throttled,
                scheduled=scheduled,
                retrying=retrying,
                foreign=foreign,
                oldest_at=min((instant(each[0][1]) for each in (ready, waiting) if each), default=None),
                oldest_ready_at=instant(ready[0][1]) if ready else None,
                paused=_pause(paused[name.encode()]) if name.encode() in paused else None,
            )
            for name, (pending, throttled, scheduled, retrying, foreign, ready, waiting) in zip(
                names, rows, strict=True
            )
        ]


def _pause(stored: bytes) -> dict[str, str]:
    """Why a queue is paused, by whom and since when; it is paused also when that was damaged."""
    try:
        about = {name: value for name, value in json.loads(stored).items() if isinstance(value, str)}
        moment(about["at"])
    except UNREADABLE:
        return {"reason": "what is stored about it cannot be read"}
    return about


def read_submitted(task_id: str, answer: bytes | Sequence[bytes]) -> Submitted:
    """What `submit.lua` said of a task."""
    if isinstance(answer, bytes):
        plain = _STATES.get(answer)
        return Submitted(id=task_id, state=plain) if plain else _stored_elsewhere(task_id, text(answer))
    what, holder, state, *queue = answer
    return Submitted(
        id=text(holder),
        state=_STATES.get(state),
        queue=text(queue[0]) if queue else "",
        existing=what == b"existing",
        conflict=what == b"conflict",
    )


_STATES = {state.encode(): state for state in TaskState}


def _stored_elsewhere(task_id: str, answer: str) -> Submitted:
    word, _, parent = answer.partition(" ")
    match word:
        case "full":
            return Submitted(id=task_id, state=None)
        case "missing":
            return Submitted(id=task_id, state=None, missing_parent=parent)
        case "closed":
            return Submitted(id=task_id, state=None, batch_closed=True)
        case "differs":
            return Submitted(id=task_id, state=None, differs=True)
        case "=removed":
            return Submitted(id=task_id, state=None, known=True, removed=True)
    return Submitted(id=task_id, state=TaskState(word.removeprefix("=")), known=word.startswith("="))


def _chunks(tasks: Sequence[NewTask]) -> Iterator[list[NewTask]]:
    """As many tasks as one step may store; looking a parent up costs as much as a task."""
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
    """Whether a task has no unique key, limit key, tenant, parents, batch or the like."""
    extra, terms = arguments[7:9]
    return not terms and not str(extra).startswith('["links",')


def submit_arguments(task: NewTask) -> tuple[Argument, ...]:
    """A task as `submit.lua` wants it."""
    return (
        task.id,
        task.queue,
        task.type,
        payload.encode(task.type, task.data),
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
"""Made once: making one takes longer than what it encodes."""


def _extra(task: NewTask) -> str:
    found = _dependency_arguments(task)
    if task.timeout:
        seconds = task.timeout.total_seconds()
        found += "time_limit", str(seconds), "timeout", str(math.ceil(seconds))
    if task.retry:
        found += "retry", json.dumps(task.retry)
    if task.meta:
        found += "meta", json.dumps(task.meta)
    if task.limit_key:
        found += "limit_key", task.limit_key
    if task.fair_key:
        found += "fair_key", task.fair_key
    return _ENCODER.encode(found) if found else ""


def _dependency_arguments(task: NewTask) -> list[str]:
    """What ties a task to others; `links` first, by which the scripts see that there is something."""
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
    return ["links", "1", *found] if found else found


def _webhook_argument(webhook: Webhook) -> str:
    about = {"url": webhook.url, "events": webhook.events, "retry": webhook.retry}
    return json.dumps({name: value for name, value in about.items() if value})


def _batch_terms(task: NewTask) -> str:
    terms: dict[str, str] = {}
    if task.unique:
        until = task.unique.until
        terms["unique"] = f"{task.type}:{task.unique.key}"
        terms["until"] = until if isinstance(until, str) else str(to_us(until) // 1000)
        terms["conflict"] = task.unique.on_conflict
        if task.unique.client:
            terms["client"], terms["by"] = task.unique.client, task.unique.by
    if task.limit_key:
        terms["limit"] = task.limit_key
    if task.fair_key:
        terms["fair"] = task.fair_key
    return json.dumps(terms) if terms else ""
