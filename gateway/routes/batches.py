"""Submitting many tasks in one request."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from flask import g

from gateway import errors, schemas
from gateway.endpoints import REPLAYED, Answer, Reply, endpoint
from gateway.errors import Refusal
from gateway.submissions import Submissions, refusal_of
from shared.errors import StoreUnavailable
from shared.idempotency import Begun, Idempotency, task_id
from shared.queues import CHUNK, Queues
from shared.tasks import NewTask


class Batches:
    """Tasks by the thousand."""

    def __init__(self, queues: Queues, intake: Submissions, idempotency: Idempotency) -> None:
        self.idempotency = idempotency
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
        idempotent=True,
    )
    def submit(self, body: schemas.BatchBody) -> Reply:
        """Submits up to 10,000 tasks at once; each is accepted or refused by itself and answered in its place.

        Sent again with the same Idempotency-Key it goes on where the first one stopped, and stores nothing twice.
        """
        if g.request_key is None:
            return _reply(self._submit(body, None))
        begun = self.idempotency.begin(g.request_key)
        if isinstance(begun, bytes):
            return _reply(with_ids(begun), REPLAYED)
        try:
            answer = self._submit(body, begun)
        except Refusal:
            self.idempotency.forget(begun)
            raise
        if not any(_unavailable(item) for item in answer["items"]):
            self.idempotency.end(begun, without_ids(answer, begun))
        return _reply(answer)

    def _submit(self, body: schemas.BatchBody, begun: Begun | None) -> dict[str, Any]:
        items: list[Mapping[str, Any]] = [{}] * len(body.tasks)
        tasks: list[tuple[int, NewTask]] = []
        for at, value in enumerate(body.tasks):
            try:
                tasks.append((at, self.intake.read(value, g.trace_parent, begun.task_id(at) if begun else None)))
            except Refusal as refusal:
                if refusal.kind is errors.NO_TYPES:
                    raise
                items[at] = {"problem": _problem(refusal)}
        with self.intake.tracing.storing(len(tasks)):
            accepted = self._store(tasks, items, begun)
        return {"accepted": accepted, "refused": len(items) - accepted, "items": items}

    def _store(self, tasks: Sequence[tuple[int, NewTask]], items: list[Mapping[str, Any]], begun: Begun | None) -> int:
        """Stores chunk by chunk and writes down what became of each; how many were stored.

        When Redis goes away in the middle, what is stored stays and is said to be; only if nothing was is the whole
        request refused.
        """
        accepted = 0
        for first in range(0, len(tasks), CHUNK):
            chunk = tasks[first : first + CHUNK]
            try:
                if begun and first:
                    self.idempotency.go_on(begun)
                stored = self.queues.submit([task for _, task in chunk])
            except StoreUnavailable as error:
                if accepted == 0 and first == 0:
                    raise
                self._give_up(tasks[first:], items, errors.refusal_of(error))
                return accepted
            for (at, task), each in zip(chunk, stored, strict=True):
                if refusal := refusal_of(task, each):
                    items[at] = {"problem": _problem(refusal)}
                    continue
                items[at] = {"task_id": each.id, "status": each.state}
                if each.stored:
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


def _reply(answer: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Reply:
    return Reply(content=answer, status=207 if answer["refused"] else 202, headers=headers or {})


def _unavailable(item: Mapping[str, Any]) -> bool:
    """It was not stored because Redis went away: sending the request again is to store it."""
    return "problem" in item and item["problem"]["status"] == 503


def without_ids(answer: Mapping[str, Any], begun: Begun) -> bytes:
    """The answer as it is kept for those who send the request again: ids that the seed tells are left out."""
    items = [
        {"status": item["status"]} if item.get("task_id") == begun.task_id(at) else item
        for at, item in enumerate(answer["items"])
    ]
    return json.dumps({"seed": begun.seed, **answer, "items": items}).encode()


def with_ids(kept: bytes) -> dict[str, Any]:
    """The answer again."""
    answer: dict[str, Any] = json.loads(kept)
    seed = answer.pop("seed")
    answer["items"] = [
        {"task_id": task_id(seed, at), **item} if len(item) == 1 and "status" in item else item
        for at, item in enumerate(answer["items"])
    ]
    return answer
