"""Submitting many tasks in one request: as a JSON document, or as a stream of lines."""

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
"""Refusals that say when to try again, as they do of a single task."""


class BatchSubmission:
    """Tasks by the thousand."""

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
            202: Answer(description="Every task is kept.", model=schemas.BatchAccepted),
            207: Answer(
                description=(
                    "Some tasks are kept; the others say why not, and Retry-After when to try those again that found "
                    "a full queue, or Redis away. A stream is always answered so."
                ),
                model=schemas.BatchAccepted,
                lines=schemas.BatchLine,
            ),
        },
        problems=(errors.NO_TYPES, errors.BUSY, errors.BAD_REQUEST, errors.TOO_SLOW),
        idempotent=True,
    )
    def submit(self, body: schemas.BatchBody | Lines, query: schemas.BatchQuery) -> Reply:
        """Submits up to 10,000 tasks at once, or a million as a stream; each is accepted or refused by itself.

        A stream (`application/x-ndjson`) has one task a line, and its first line may be `{"batch": {…}}` with what
        holds for the whole; it is read and answered line by line, so read the answer while you send. Sent again with
        the same Idempotency-Key it goes on where the first one stopped, and stores nothing twice.
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
        """The answer that this request had before, for one that would be refused by now."""
        kept = self.idempotency.first_answer(request)
        return None if kept is None else _reply(with_ids(kept), REPLAYED)

    def _keep(self, begun: Begun, answer: Mapping[str, Any]) -> None:
        """Keeps an answer that stands; where time may mend a refusal, whoever sends it again goes on."""
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
                # Also where some of it was refused for now: nobody knows whether that is ever sent again.
                self.intake.batches.close(identity.batch_id)
        taken = accepted(items)
        batch_id = identity.batch_id if planned.tasks else None
        return {"batch_id": batch_id, "accepted": taken, "refused": len(items) - taken, "items": items}

    def _store(self, tasks: Sequence[tuple[int, NewTask]], items: list[Item], begun: Begun | None) -> bool:
        """Stores chunk by chunk and writes down what became of each; whether Redis was there to the end.

        When Redis goes away in the middle, what is stored stays and is said to be; only if nothing was is the whole
        request refused.
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
