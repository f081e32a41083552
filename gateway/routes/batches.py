"""Endpoint for submitting many tasks in one request: as a JSON document, or as a stream of lines."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from flask import g

from gateway import schemas
from gateway.http import errors, ndjson
from gateway.http.endpoints import REPLAYED, Answer, Reply, endpoint
from gateway.http.errors import Refusal
from gateway.http.ndjson import Lines
from gateway.tasks.batch_planner import BatchPlanner, Identity, Item, accepted, plan, problem
from gateway.tasks.batch_stream import BatchStream
from shared.domain.task import NewTask
from shared.errors import StoreUnavailable
from shared.failpoints import stop_point
from shared.stores.api_keys import Scope
from shared.stores.idempotency import Begun, Idempotency, Request, new_seed, task_id
from shared.stores.queues import CHUNK

_REDIS_AWAY = {errors.STORE.type, errors.STORE_REFUSED.type}
_FOR_NOW = {errors.QUEUE_FULL.type, errors.NOT_UNIQUE.type}
_SOON = {*_REDIS_AWAY, errors.QUEUE_FULL.type}
"""Refusals with Retry-After, as for a single task."""


class BatchSubmission:
    """Submission of batches."""

    def __init__(self, intake: BatchPlanner, idempotency: Idempotency, stopping: threading.Event) -> None:
        self.idempotency = idempotency
        self.intake = intake
        self.stopping = stopping

    @endpoint(
        "POST",
        "/tasks/batch",
        tag="batches",
        scope=Scope.SUBMIT,
        body=schemas.BatchBody,
        query=schemas.BatchQuery,
        lines=True,
        answers={
            202: Answer(description="Every task is accepted and stored.", model=schemas.BatchAccepted),
            207: Answer(
                description=(
                    "Some tasks are accepted; each refused one has its problem. Retry-After is sent when a queue was "
                    "full or Redis was unavailable. A stream always gets this status."
                ),
                model=schemas.BatchAccepted,
                lines=schemas.BatchLine,
            ),
        },
        problems=(errors.NO_TYPES, errors.BUSY, errors.BAD_REQUEST, errors.TOO_SLOW),
        idempotent=True,
    )
    def submit(self, body: schemas.BatchBody | Lines, query: schemas.BatchQuery) -> Reply:
        """Submits up to 10,000 tasks at once, or a million as a stream. Each is accepted or refused by itself.

        A stream (`application/x-ndjson`) has one task per line; its first line may be `{"batch": {…}}` with options of
        the batch. It is read and answered line by line, so read the response while you send. When resent with the same
        Idempotency-Key, it continues where the first one stopped and stores nothing twice.
        """
        if isinstance(body, Lines):
            return self._stream(body, query.start)
        if g.request_key is None:
            return _reply(self._submit(body, new_seed(), None))
        begun = self.idempotency.begin(g.request_key)
        if isinstance(begun, bytes):
            return _reply(with_ids(begun), REPLAYED)
        stop_point("gateway.batch-begun")
        try:
            answer = self._submit(body, begun.seed, begun)
        except Refusal:
            self.idempotency.forget(begun)
            raise
        self._keep(begun, answer)
        return _reply(answer)

    def replay(self, request: Request, body: Any) -> Reply | None:
        """Returns the first response to this request, for a repetition that validation would refuse now."""
        kept = self.idempotency.first_answer(request)
        return None if kept is None else _reply(with_ids(kept), REPLAYED)

    def _keep(self, begun: Begun, answer: Mapping[str, Any]) -> None:
        """Stores a final response; after a temporary refusal, a repetition of the request continues instead."""
        refused = _refusals(answer)
        if refused & _REDIS_AWAY:
            return
        if refused & _FOR_NOW:
            self.idempotency.pause(begun)
        else:
            self.idempotency.end(begun, without_ids(answer, begun))

    def _stream(self, lines: Lines, start: int) -> Reply:
        begun = self.idempotency.hold(g.request_key) if g.request_key else None
        identity = Identity(begun.seed if begun else new_seed())
        stream = BatchStream(self.intake, identity, lines, start, g.trace_parent, self.stopping)
        try:
            stream.begin()
        except Refusal:
            if begun:
                self.idempotency.forget(begun)
            raise
        return Reply(content=stream.answers(), status=207, media_type=ndjson.MEDIA_TYPE)

    def _submit(self, body: schemas.BatchBody, seed: str, begun: Begun | None) -> dict[str, Any]:
        identity = Identity(seed)
        planned = plan(self.intake, identity, body.tasks, g.trace_parent)
        items: list[Item] = [planned.refused.get(at, {}) for at in range(len(body.tasks))]
        if planned.tasks:
            self.intake.open(identity, body, g.trace_parent)
            if self._store(planned.tasks, items, begun):
                # Also after temporary refusals: the refused tasks may never be sent again.
                self.intake.batches.close(identity.batch_id)
        taken = accepted(items)
        batch_id = identity.batch_id if planned.tasks else None
        return {"batch_id": batch_id, "accepted": taken, "refused": len(items) - taken, "items": items}

    def _store(self, tasks: Sequence[tuple[int, NewTask]], items: list[Item], begun: Begun | None) -> bool:
        """Stores tasks in chunks and records each outcome in `items`. Returns whether Redis answered throughout.

        If Redis fails after the first chunk, stored tasks are reported as stored. Raises StoreUnavailable if it fails
        at the first chunk.
        """
        for first in range(0, len(tasks), CHUNK):
            chunk = tasks[first : first + CHUNK]
            try:
                if begun and first:
                    self.idempotency.go_on(begun)
                stored = self.intake.store([task for _, task in chunk])
                stop_point("gateway.chunk-stored")
            except StoreUnavailable as error:
                if first == 0:
                    raise
                self._give_up(tasks[first:], items, errors.refusal_of(error))
                return False
            for (at, _), each in zip(chunk, stored, strict=True):
                items[at] = each
        return True

    def _give_up(self, tasks: Sequence[tuple[int, NewTask]], items: list[Item], refusal: Refusal) -> None:
        for at, task in tasks[:CHUNK]:
            items[at] = {"task_id": task.id, "problem": problem(refusal)}
        for at, _ in tasks[CHUNK:]:
            items[at] = {"problem": problem(refusal)}


def _reply(answer: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Reply:
    if not answer["refused"]:
        return Reply(content=answer, status=202, headers=headers or {})
    wait = {"Retry-After": str(errors.RETRY_AFTER)} if _refusals(answer) & _SOON else {}
    return Reply(content=answer, status=207, headers={**wait, **(headers or {})})


def _refusals(answer: Mapping[str, Any]) -> set[str]:
    return {item["problem"]["type"] for item in answer["items"] if "problem" in item}


def without_ids(answer: Mapping[str, Any], begun: Begun) -> bytes:
    """Returns the response in its stored form, without ids that follow from the seed."""
    items = [
        {"status": item["status"]} if item.get("task_id") == begun.task_id(at) else item
        for at, item in enumerate(answer["items"])
    ]
    return json.dumps({"seed": begun.seed, **answer, "items": items}).encode()


def with_ids(kept: bytes) -> dict[str, Any]:
    """Returns the response restored from its stored form."""
    answer: dict[str, Any] = json.loads(kept)
    seed = answer.pop("seed")
    answer["items"] = [
        {"task_id": task_id(seed, at), **item} if len(item) == 1 and "status" in item else item
        for at, item in enumerate(answer["items"])
    ]
    return answer
