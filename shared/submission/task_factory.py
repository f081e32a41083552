"""Creates tasks from submissions, single or in a batch, of a gateway or of a program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from firmq.shared.domain import strict_json
from firmq.shared.domain.payload import PayloadReference
from firmq.shared.domain.queue_selection import DEFAULT
from firmq.shared.domain.store_number import store_of_id
from firmq.shared.domain.task import (
    BatchPlace,
    Conflict,
    NewTask,
    On,
    OnParentFailure,
    Parent,
    Unique,
    as_given,
    new_task_id,
)
from firmq.shared.stores.payloads import Payloads
from firmq.shared.stores.queues import FULL, SHARE_OF_QUEUES, TOO_MANY_QUEUES, SubmitOutcome, Submitted
from firmq.shared.submission import refusals
from firmq.shared.submission.bodies import DependencyBody, NewTaskBody, read_body
from firmq.shared.submission.refusals import Refusal
from firmq.shared.submission.type_cache import TypeCache

if TYPE_CHECKING:
    from firmq.shared.observability.tracing import Tracing

Find = Callable[[int | str], str]
"""Returns the id of a task of the same batch by its index or name. Raises ValueError with the reason."""


def not_in_a_batch(item: int | str) -> str:
    """Refuses a reference by index or name from a task outside a batch. Raises ValueError."""
    raise ValueError("refers to a task of a batch, but this task is not in one: use task_id")


class Submitter(NamedTuple):
    """The submitter, where callers have names: the client, and the same with its API key.

    `name` is recorded with the task: the client, or the Redis user of a program that submits directly.
    """

    client: str = ""
    by: str = ""
    name: str = ""


class TaskFactory:
    """Validates submissions and creates tasks from them."""

    def __init__(
        self,
        type_cache: TypeCache,
        tracing: Tracing | None,
        default_priority: str,
        context: Mapping[str, Any],
        payloads: Payloads,
        mark: str = "",
        admits: Callable[[str, str], bool] = lambda client, queue: True,
    ) -> None:
        """`context` is the body validators'; without `tracing` tasks keep the trace that is given.

        `mark` ends the ids of the tasks, as in `Scripts`. `admits` returns whether a client may name a queue.
        """
        self.type_cache = type_cache
        self.tracing = tracing
        self.default_priority = default_priority
        self.context = context
        self.payloads = payloads
        self.mark = mark
        self.admits = admits

    def queue_of(self, task_type: str, *named: str | None) -> str:
        """Returns the first queue named, else the type's, else the default priority."""
        name = next(filter(None, named), None) or self.type_cache.queue_of(task_type) or DEFAULT
        return self.default_priority if name == DEFAULT else name

    @contextmanager
    def checked(
        self, body: NewTaskBody, trace_parent: str | None, submitter: Submitter, find: Find = not_in_a_batch
    ) -> Iterator[NewTask]:
        """Yields a task to be stored within the span of its submission. Raises Refusal when the data is invalid.

        `find` resolves dependencies by index or name in a batch.
        """
        self.type_cache.check(body.type, body.data)
        task = self.new(body, new_task_id(self.mark), submitter, find)
        with self.traced(task, trace_parent) as traced:
            yield traced

    def read(
        self,
        model: type[NewTaskBody],
        value: Any,
        trace_parent: str | None,
        submitter: Submitter,
        task_id: str,
        find: Find,
        batch: BatchPlace,
        since: float,
    ) -> NewTask:
        """Returns the task of one item of a batch received at `since`. Raises Refusal with all of its mistakes."""
        body = read_body(model, value, self.context)
        self.type_cache.check(body.type, body.data, since)
        task = self.new(body, task_id, submitter, find, batch)
        with self.traced(task, trace_parent, "create") as traced:
            return traced

    def traced(
        self, task: NewTask, trace_parent: str | None, operation: str = "send"
    ) -> AbstractContextManager[NewTask]:
        """Returns the task as part of its trace, to be stored within the span of its submission."""
        if self.tracing is None or not self.tracing.on:
            return nullcontext(task.with_trace(trace_parent))
        return _within_span(self.tracing, task, trace_parent, operation)

    def new(
        self,
        body: NewTaskBody,
        task_id: str,
        submitter: Submitter,
        find: Find = not_in_a_batch,
        batch: BatchPlace | None = None,
        data: str | PayloadReference | None = None,
    ) -> NewTask:
        """Returns the task of a body whose data is valid; `data` is its JSON text or payload, if known.

        Raises Refusal for a parent that is not in the batch and for one queue too many, and PayloadUnavailable.
        """
        self.type_cache.check_queue(body.type, body.queue)
        queue = self.queue_of(body.type, body.queue, body.priority)
        if body.queue and not self.admits(submitter.client, queue):
            raise Refusal(refusals.TOO_MANY_QUEUES, SHARE_OF_QUEUES.format(queue=queue, client=submitter.client))
        return NewTask(
            id=task_id,
            type=body.type,
            data=self.payloads.data_of(task_id, strict_json.dump(body.data)) if data is None else data,
            queue=queue,
            delay=_duration(body.delay),
            run_at=body.run_at,
            expires_in=_duration(body.expires_in),
            timeout=_duration(body.timeout),
            retry=body.retry_overrides() or None,
            tags=tuple(dict.fromkeys(body.tags)) if body.tags else (),
            unique=_unique(body, submitter),
            parents=_parents(body.depends_on, find) if body.depends_on else (),
            batch=batch,
            on_parent_failure=OnParentFailure(body.on_parent_failure or OnParentFailure.CANCEL),
            **as_given(body),
            webhook=body.webhook.webhook() if body.webhook else None,
            submitted_by=submitter.name,
        )


@contextmanager
def _within_span(tracing: Tracing, task: NewTask, trace_parent: str | None, operation: str) -> Iterator[NewTask]:
    with tracing.sending(task.subject, trace_parent, operation) as travelling:
        yield task.with_trace(travelling)


def refusal_of(task: NewTask, stored: Submitted) -> Refusal | None:
    """Returns why a task was not stored; None when it was, or when the existing one was requested."""
    match stored.outcome:
        case SubmitOutcome.FULL:
            return queue_full(task.queue)
        case SubmitOutcome.TOO_MANY_QUEUES:
            return Refusal(refusals.TOO_MANY_QUEUES, TOO_MANY_QUEUES.format(queue=task.queue))
        case SubmitOutcome.CONFLICT:
            return not_unique(task, stored)
        case SubmitOutcome.MISSING_PARENT:
            return no_parent(task, stored.missing_parent)
        case SubmitOutcome.BATCH_CLOSED:
            return Refusal(refusals.BATCH_STOPPED, "the batch was closed or stopped: submit the task in another batch")
        case SubmitOutcome.DIFFERS:
            detail = f"task {task.id} was sent at this index of the batch before, with different data"
            return Refusal(refusals.NOT_THE_SAME, detail)
    return None


def not_unique(task: NewTask, other: Submitted) -> Refusal:
    """Returns the refusal of a task whose unique_key is held by another."""
    state = f"is {other.state}" if other.state else "has been removed since"
    hint = "; a task that has started cannot be replaced" if _wants_replacement(task) else ""
    return Refusal(
        refusals.NOT_UNIQUE,
        f"the unique_key is held by task {other.id}, which {state}{hint}",
        existing_task=other.id,
        task_status=other.state,
    )


def _wants_replacement(task: NewTask) -> bool:
    return task.unique is not None and task.unique.on_conflict is Conflict.REPLACE


def _unique(body: NewTaskBody, submitter: Submitter) -> Unique | None:
    if body.unique_key is None:
        return None
    until = body.unique_until
    return Unique(
        key=body.unique_key,
        until=until if isinstance(until, str) else timedelta(seconds=until),
        on_conflict=body.on_conflict,
        client=submitter.client,
        by=submitter.by,
    )


def _parents(wanted: Sequence[DependencyBody], find: Find) -> tuple[Parent, ...]:
    """Returns the parents of a task. Raises Refusal for one that is not in the batch."""
    parents = []
    for at, each in enumerate(wanted):
        try:
            task_id = each.task_id if each.item is None else find(each.item)
        except ValueError as error:
            raise refusals.invalid([refusals.field_error(("depends_on", at, "item"), str(error))]) from None
        parents.append(Parent(task_id=str(task_id), on=On(each.on)))
    return tuple({each.task_id: each for each in parents}.values())


def no_parent(task: NewTask, missing: str) -> Refusal:
    """Returns the refusal of a task that depends on a missing task."""
    ids = [each.task_id for each in task.parents]
    text = f"task {missing} does not exist: it never did, or its retention has ended"
    if store_of_id(missing) != store_of_id(task.id):
        text = (
            f"task {missing} does not exist where this task goes: submit a task and those that it depends on "
            "with the same placement_key"
        )
    return refusals.invalid([refusals.field_error(("depends_on", ids.index(missing)), text)], refusals.NO_PARENT)


def queue_full(queue: str) -> Refusal:
    """Returns the refusal of a task for a full queue."""
    headers = {"Retry-After": str(refusals.RETRY_AFTER)}
    return Refusal(refusals.QUEUE_FULL, FULL.format(queue=queue), headers=headers)


def _duration(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
