"""Submitting many tasks in one request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flask import g

from gateway import errors, schemas
from gateway.endpoints import Answer, Reply, endpoint
from gateway.errors import Refusal
from gateway.submissions import Submissions, queue_full
from shared.errors import StoreUnavailable
from shared.queues import CHUNK, Queues
from shared.tasks import NewTask


class Batches:
    """Tasks by the thousand."""

    def __init__(self, queues: Queues, intake: Submissions) -> None:
        self.queues = queues
        self.intake = intake

    @endpoint(
        "POST",
        "/tasks/batch",
        tag="tasks",
        body=schemas.BatchBody,
        answers={
            202: Answer(description="Every task is kept.", model=schemas.BatchAccepted),
            207: Answer(description="Some tasks are kept; the others say why not.", model=schemas.BatchAccepted),
        },
        problems=(errors.NO_TYPES,),
    )
    def submit(self, body: schemas.BatchBody) -> Reply:
        """Submits up to 10,000 tasks at once; each is accepted or refused by itself and answered in its place."""
        items: list[Mapping[str, Any]] = [{}] * len(body.tasks)
        tasks: list[tuple[int, NewTask]] = []
        for at, value in enumerate(body.tasks):
            try:
                tasks.append((at, self.intake.read(value, g.trace_parent)))
            except Refusal as refusal:
                if refusal.kind is errors.NO_TYPES:
                    raise
                items[at] = {"problem": _problem(refusal)}
        accepted = self._store(tasks, items)
        answer = {"accepted": accepted, "refused": len(items) - accepted, "items": items}
        return Reply(content=answer, status=202 if accepted == len(items) else 207)

    def _store(self, tasks: Sequence[tuple[int, NewTask]], items: list[Mapping[str, Any]]) -> int:
        """Stores chunk by chunk and writes down what became of each; how many were stored.

        When Redis goes away in the middle, what is stored stays and is said to be; only if nothing was is the whole
        request refused.
        """
        accepted = 0
        for first in range(0, len(tasks), CHUNK):
            chunk = tasks[first : first + CHUNK]
            try:
                stored = self.queues.submit([task for _, task in chunk])
            except StoreUnavailable as error:
                if accepted == 0 and first == 0:
                    raise
                self._give_up(tasks[first:], items, errors.refusal_of(error))
                return accepted
            for (at, task), each in zip(chunk, stored, strict=True):
                if each.state is None:
                    items[at] = {"problem": _problem(queue_full(task.queue))}
                    continue
                items[at] = {"task_id": task.id, "status": each.state}
                self.intake.count(task)
                accepted += 1
        return accepted

    def _give_up(self, tasks: Sequence[tuple[int, NewTask]], items: list[Mapping[str, Any]], refusal: Refusal) -> None:
        for at, task in tasks[:CHUNK]:
            items[at] = {"task_id": task.id, "problem": _problem(refusal)}
        for at, _ in tasks[CHUNK:]:
            items[at] = {"problem": _problem(refusal)}


def _problem(refusal: Refusal) -> dict[str, Any]:
    return {
        "type": refusal.kind.type,
        "title": refusal.kind.title,
        "status": refusal.kind.status,
        "detail": refusal.detail,
        **refusal.members,
    }
