"""From a checked body to a task on its way in: the same for one task and for many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from flask import g
from pydantic import ValidationError

from gateway.auth.authenticator import actor
from gateway.http import errors
from gateway.http.errors import Refusal
from gateway.metrics import Metrics
from gateway.schemas.batches import BatchItemBody
from gateway.schemas.submission import DependencyBody, NewTaskBody, WebhookBody
from gateway.tasks import validation_messages
from gateway.tasks.type_cache import TypeCache
from shared.domain import strict_json
from shared.domain.task import BatchPlace, Conflict, NewTask, On, OnParentFailure, Parent, Unique, Webhook, new_task_id
from shared.observability.tracing import Tracing, subject_of
from shared.stores.queues import Submitted

Find = Callable[[int | str], str]
"""Gives the id of a task of the same batch, named by its place or its name. Raises ValueError saying why it cannot."""


def not_in_a_batch(item: int | str) -> str:
    """For a task that comes alone."""
    raise ValueError("names a task of a batch, and this is none: use task_id")


class TaskFactory:
    """Checks what is to be submitted and makes tasks of it."""

    def __init__(
        self,
        type_cache: TypeCache,
        metrics: Metrics,
        tracing: Tracing,
        default_priority: str,
        context: Mapping[str, Any],
    ) -> None:
        self.type_cache = type_cache
        self.metrics = metrics
        self.tracing = tracing
        self.default_priority = default_priority
        self.context = context

    def queue_of(self, priority: str | None) -> str:
        """The queue that somebody means by this, also where it is none of today's."""
        return str(self.context["priorities"].get(priority or "default", priority))

    @contextmanager
    def checked(self, body: NewTaskBody, trace_parent: str | None, find: Find = not_in_a_batch) -> Iterator[NewTask]:
        """A task to be stored inside, within the span of its submission. Raises Refusal when the data does not fit.

        `find` gives the ids of tasks that it names by their place in a batch.
        """
        self.type_cache.check(body.type, body.data)
        parents = _parents(body.depends_on, find) if body.depends_on else ()
        task = self._task(body, None, parents)
        with self.tracing.sending(subject_of(task), trace_parent) as travelling:
            yield task.with_trace(travelling)

    def read(
        self, value: Any, trace_parent: str | None, task_id: str, find: Find, batch: BatchPlace, since: float
    ) -> NewTask:
        """One item of a batch that came at `since`, under its id. Raises Refusal with all that is wrong with it."""
        if not isinstance(value, dict):
            raise errors.invalid(
                [errors.field_error((), f"must be a JSON object, got {validation_messages.kind_of(value)}")]
            )
        try:
            body = BatchItemBody.model_validate(value, context=self.context)
        except ValidationError as error:
            mistakes = validation_messages.explain(error, BatchItemBody)
            raise errors.invalid([errors.field_error(path, text) for path, text in mistakes]) from None
        self.type_cache.check(body.type, body.data, since)
        parents = _parents(body.depends_on, find) if body.depends_on else ()
        task = self._task(body, task_id, parents, batch)
        if not self.tracing.on:
            return task.with_trace(trace_parent)
        with self.tracing.sending(subject_of(task), trace_parent, "create") as travelling:
            return task.with_trace(travelling)

    def count(self, *tasks: NewTask) -> None:
        """These tasks were accepted."""
        for (queue, task_type), number in Counter((task.queue, task.type) for task in tasks).items():
            self.metrics.submitted(queue, task_type, number)

    def _task(
        self, body: NewTaskBody, task_id: str | None, parents: tuple[Parent, ...], batch: BatchPlace | None = None
    ) -> NewTask:
        return NewTask(
            id=task_id or new_task_id(),
            type=body.type,
            data=strict_json.dump(body.data),
            queue=body.priority or self.default_priority,
            delay=_duration(body.delay),
            run_at=body.run_at,
            expires_in=_duration(body.expires_in),
            timeout=_duration(body.timeout),
            retry=body.retry_overrides() or None,
            tags=tuple(dict.fromkeys(body.tags)) if body.tags else (),
            unique=_unique(body),
            parents=parents,
            batch=batch,
            on_parent_failure=OnParentFailure(body.on_parent_failure or OnParentFailure.CANCEL),
            limit_key=body.limit_key,
            fair_key=body.fair_key,
            webhook=webhook_of(body.webhook) if body.webhook else None,
        )


def webhook_of(body: WebhookBody) -> Webhook:
    """Whom to tell, as it is stored."""
    retry = body.retry.model_dump(exclude_none=True) if body.retry else None
    return Webhook(url=body.url, events=tuple(dict.fromkeys(body.events or ())), retry=retry)


def refusal_of(task: NewTask, stored: Submitted) -> Refusal | None:
    """Why a task was not stored; None when it was, or when the existing one was asked for."""
    if stored.full:
        return queue_full(task.queue)
    if stored.conflict:
        return not_unique(task, stored)
    if stored.missing_parent is not None:
        return no_parent(task, stored.missing_parent)
    if stored.batch_closed:
        return Refusal(errors.BATCH_STOPPED, "the batch was stopped: it takes no more tasks")
    if stored.differs:
        return Refusal(
            errors.NOT_THE_SAME, f"task {task.id} was sent at this place of the batch before, with other data"
        )
    return None


def not_unique(task: NewTask, other: Submitted) -> Refusal:
    """Another task holds the unique key."""
    state = f"is {other.state}" if other.state else "has been removed since"
    hint = "; one that runs already cannot be replaced" if _wants_replacement(task) else ""
    return Refusal(
        errors.NOT_UNIQUE,
        f"the unique_key is held by task {other.id}, which {state}{hint}",
        existing_task=other.id,
        task_status=other.state,
    )


def _wants_replacement(task: NewTask) -> bool:
    return task.unique is not None and task.unique.on_conflict is Conflict.REPLACE


def _unique(body: NewTaskBody) -> Unique | None:
    if body.unique_key is None:
        return None
    until = body.unique_until
    return Unique(
        key=body.unique_key,
        until=until if isinstance(until, str) else timedelta(seconds=until),
        on_conflict=body.on_conflict,
        client=g.get("client", ""),
        by=actor(),
    )


def _parents(wanted: Sequence[DependencyBody], find: Find) -> tuple[Parent, ...]:
    """Raises Refusal for one that cannot be found in the batch."""
    parents = []
    for at, each in enumerate(wanted):
        try:
            task_id = each.task_id if each.item is None else find(each.item)
        except ValueError as error:
            raise errors.invalid([errors.field_error(("depends_on", at, "item"), str(error))]) from None
        parents.append(Parent(task_id=str(task_id), on=On(each.on)))
    return tuple({each.task_id: each for each in parents}.values())


def no_parent(task: NewTask, missing: str) -> Refusal:
    """A task that it depends on does not exist."""
    ids = [each.task_id for each in task.parents]
    text = f"there is no task {missing}: it never existed, or its retention is over"
    return errors.invalid([errors.field_error(("depends_on", ids.index(missing)), text)], errors.NO_PARENT)


def queue_full(queue: str) -> Refusal:
    """The queue of a priority takes no more for now."""
    return Refusal(
        errors.QUEUE_FULL,
        f"the queue of priority {queue} is full of tasks that wait to run now: try again later, or another priority",
        headers={"Retry-After": str(errors.RETRY_AFTER)},
    )


def _duration(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
