"""Endpoints for submitting many tasks: in one request, or in several that fill a batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from flask import g

from firmq.gateway import present, schemas
from firmq.gateway.auth.authenticator import demand_scope, has_scope
from firmq.gateway.http import errors
from firmq.gateway.http.across import Across
from firmq.gateway.http.endpoints import REPLAYED, Answer, Reply, endpoint
from firmq.gateway.tasks.batch_planner import (
    BatchPlanner,
    Identity,
    Item,
    Plan,
    accepted,
    check_dependencies,
    plan,
    problem,
)
from firmq.gateway.tasks.earlier_tasks import EarlierTaskReader
from firmq.shared.domain.task import NewTask
from firmq.shared.errors import BatchNotFound, PayloadUnavailable, StoreUnavailable
from firmq.shared.failpoints import failpoint
from firmq.shared.stores.api_keys import Scope
from firmq.shared.stores.idempotency import Begun, Idempotency, Request, new_seed
from firmq.shared.stores.queues import CHUNK
from firmq.shared.submission import refusals
from firmq.shared.submission.refusals import Refusal
from firmq.shared.submission.submissions import parents_in

_REDIS_AWAY = {refusals.STORE.type, refusals.STORE_REFUSED.type}
_FOR_NOW = {refusals.QUEUE_FULL.type, refusals.TOO_MANY_QUEUES.type, refusals.NOT_UNIQUE.type}
_SOON = {*_REDIS_AWAY, refusals.QUEUE_FULL.type}
"""Refusals with Retry-After, as for a single task."""
_ANSWERS = {
    202: Answer(description="Every task is accepted and stored.", model=schemas.BatchAccepted),
    207: Answer(
        description=(
            "Some tasks are accepted; each refused one has its problem. Retry-After is sent when a queue was full or "
            "Redis was unavailable."
        ),
        model=schemas.BatchAccepted,
    ),
}
Submission = Callable[[str, Begun | None], dict[str, Any]]
"""Carries a request out: takes the seed of its ids, and the request if it has an Idempotency-Key."""


class BatchSubmission:
    """Submission of batches."""

    def __init__(self, planner: BatchPlanner, idempotency: Idempotency, reader: EarlierTaskReader) -> None:
        self.idempotency = idempotency
        self.planner = planner
        self.reader = reader

    @endpoint(
        "POST",
        "/tasks/batch",
        Across.BATCH,
        tag="batches",
        scope=Scope.SUBMIT,
        body=schemas.BatchBody,
        answers=_ANSWERS,
        problems=(refusals.NO_TYPES, refusals.PAYLOAD_STORE),
        idempotent=True,
    )
    def submit(self, body: schemas.BatchBody) -> Reply:
        """Submits a whole batch of up to 10,000 tasks. Each is accepted or refused individually."""

        def carry_out(seed: str, begun: Begun | None) -> dict[str, Any]:
            check_dependencies(body.tasks)
            identity = Identity.new(seed)
            planned = plan(self.planner, identity, body.tasks, g.trace_parent)
            if not planned.tasks:
                return _answer(None, planned.refused)
            self.planner.open(identity, body, g.trace_parent)
            items, whole = self._store(planned, begun)
            if whole:
                # Also after temporary refusals: the refused tasks may never be sent again.
                self.planner.batches.close(identity.batch_id)
            return _answer(identity.batch_id, items)

        return _reply(*self._once(carry_out, stays=_has_parents(body.tasks)))

    @endpoint(
        "POST",
        "/batches",
        Across.BATCH,
        tag="batches",
        scope=Scope.SUBMIT,
        body=schemas.NewBatchBody,
        answers=_ANSWERS,
        problems=(refusals.NO_TYPES, refusals.PAYLOAD_STORE, refusals.NOT_FOUND, errors.SCOPE, errors.ASKED_TOO_OFTEN),
        idempotent=True,
    )
    def create(self, body: schemas.NewBatchBody) -> Reply:
        """Creates a batch that receives tasks until it is closed. It can contain its first tasks.

        When resent with the same Idempotency-Key, it opens the same batch again, even if that was closed.

        With `from` it has a task for each of many earlier ones, with values from their data and results, and is
        closed when they are stored. That needs the scopes submit and read.
        """
        if body.earlier is not None:
            demand_scope(Scope.READ, "a batch from earlier tasks")

        def carry_out(seed: str, begun: Begun | None) -> dict[str, Any]:
            identity, values = Identity.new(seed), body.tasks
            if body.earlier is not None and body.task is not None:
                values = self.reader.tasks(body.earlier, body.task, begun)
            check_dependencies(values)
            planned = plan(self.planner, identity, values, g.trace_parent)
            self.planner.open(identity, body, g.trace_parent)
            self.planner.batches.extend(identity.batch_id, len(values), 0, "")
            items, whole = self._store(planned, begun)
            if body.earlier is not None and whole:
                self.planner.batches.close(identity.batch_id)
            return _answer(identity.batch_id, items)

        with self.reader.room.entered() if body.earlier else nullcontext():
            answer, headers = self._once(carry_out, stays=body.earlier is not None or _has_parents(body.tasks))
        if headers and body.earlier is None:
            self.planner.open(Identity(answer["batch_id"]), body, g.trace_parent)
        return _reply(answer, headers)

    @endpoint(
        "POST",
        "/batches/{batch_id}/tasks",
        Across.ID,
        tag="batches",
        scope=Scope.SUBMIT,
        body=schemas.MoreTasksBody,
        answers=_ANSWERS,
        problems=(refusals.NO_TYPES, refusals.PAYLOAD_STORE, refusals.NOT_FOUND),
        idempotent=True,
    )
    def add(self, batch_id: str, body: schemas.MoreTasksBody) -> Reply:
        """Adds up to 10,000 tasks to a batch. Each is accepted or refused individually."""

        def carry_out(_: str, begun: Begun | None) -> dict[str, Any]:
            check_dependencies(body.tasks)
            request = begun.request.digest if begun else ""
            start = self.planner.batches.extend(batch_id, len(body.tasks), body.start, request)
            planned = plan(self.planner, Identity(batch_id), body.tasks, g.trace_parent, start)
            return _answer(batch_id, self._store(planned, begun)[0])

        return _reply(*self._once(carry_out, stays=True))

    @endpoint(
        "POST",
        "/batches/{batch_id}/close",
        Across.ID,
        tag="batches",
        scope=Scope.SUBMIT,
        answers={
            200: Answer(description="The batch receives no more tasks.", model=schemas.BatchView),
            204: Answer(description="The same, for a key without the scope read.", media_type=""),
        },
        problems=(refusals.NOT_FOUND,),
    )
    def close(self, batch_id: str) -> Reply:
        """Closes a batch: all of its tasks were sent. It ends when they have ended."""
        self.planner.batches.close(batch_id)
        if not has_scope(Scope.READ):
            return Reply(content=b"", status=204)
        return Reply(content=present.batch(self.planner.batches.get(batch_id)))

    def replay(self, request: Request, body: Any) -> Reply | None:
        """Returns the first response to this request, for a repetition that validation would refuse now."""
        kept = self.idempotency.first_answer(request)
        return None if kept is None else _reply(with_ids(kept), REPLAYED)

    # --- each request once ---

    def _once(self, carry_out: Submission, *, stays: bool) -> tuple[dict[str, Any], Mapping[str, str]]:
        """Carries a request out, or finds the first response to its Idempotency-Key. Returns response and headers.

        With `stays` something ties its tasks to this store.
        """
        if g.request_key is None:
            return carry_out(new_seed(self.idempotency.scripts.mark), None), {}
        begun = self.idempotency.begin(g.request_key, stays=stays)
        if isinstance(begun, bytes):
            return with_ids(begun), REPLAYED
        failpoint("gateway.batch-begun")
        try:
            answer = carry_out(begun.seed, begun)
        except (Refusal, BatchNotFound, PayloadUnavailable):
            self.idempotency.forget(begun)
            raise
        self._keep(begun, answer)
        return answer, {}

    def _keep(self, begun: Begun, answer: Mapping[str, Any]) -> None:
        """Stores a final response; after a temporary refusal, a repetition of the request continues instead."""
        refused = _refusals(answer)
        if refused & _REDIS_AWAY:
            return
        if refused & _FOR_NOW:
            self.idempotency.pause(begun)
        else:
            self.idempotency.end(begun, without_ids(answer))

    def _store(self, planned: Plan, begun: Begun | None) -> tuple[dict[int, Item], bool]:
        """Stores tasks in chunks. Returns the outcome of each task, and whether Redis answered throughout.

        If Redis fails after the first chunk, stored tasks are reported as stored. Raises StoreUnavailable if it fails
        at the first chunk.
        """
        tasks, items = planned.tasks, dict(planned.refused)
        for first in range(0, len(tasks), CHUNK):
            chunk = tasks[first : first + CHUNK]
            try:
                if begun and first:
                    self.idempotency.go_on(begun)
                stored = self.planner.store([task for _, task in chunk])
                failpoint("gateway.chunk-stored")
            except StoreUnavailable as error:
                if first == 0:
                    raise
                return items | _unknown(tasks[first:], problem(errors.refusal_of(error))), False
            items.update((at, each) for (at, _), each in zip(chunk, stored, strict=True))
        return items, True


def _has_parents(tasks: Sequence[Any]) -> bool:
    return next(parents_in(tasks), None) is not None


def _unknown(tasks: Sequence[tuple[int, NewTask]], why: Item) -> dict[int, Item]:
    """Returns the outcome of tasks when Redis failed: the first chunk may be stored, so its tasks have an id."""
    sent = {at: {"task_id": task.id, "problem": why} for at, task in tasks[:CHUNK]}
    return sent | {at: {"problem": why} for at, _ in tasks[CHUNK:]}


def _answer(batch_id: str | None, items: Mapping[int, Item]) -> dict[str, Any]:
    listed = [{"index": at, **items[at]} for at in sorted(items)]
    taken = accepted(listed)
    return {"batch_id": batch_id, "accepted": taken, "refused": len(listed) - taken, "items": listed}


def _reply(answer: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Reply:
    if not answer["refused"]:
        return Reply(content=answer, status=202, headers=headers or {})
    wait = {"Retry-After": str(refusals.RETRY_AFTER)} if _refusals(answer) & _SOON else {}
    return Reply(content=answer, status=207, headers={**wait, **(headers or {})})


def _refusals(answer: Mapping[str, Any]) -> set[str]:
    return {item["problem"]["type"] for item in answer["items"] if "problem" in item}


def without_ids(answer: Mapping[str, Any]) -> bytes:
    """Returns the response in its stored form, without ids that follow from the batch."""
    items = [_without_id(answer["batch_id"], item) for item in answer["items"]]
    return json.dumps({**answer, "items": items}).encode()


def with_ids(kept: bytes) -> dict[str, Any]:
    """Returns the response restored from its stored form."""
    answer: dict[str, Any] = json.loads(kept)
    answer["items"] = [_with_id(answer["batch_id"], item) for item in answer["items"]]
    return answer


def _without_id(batch_id: str | None, item: Item) -> Item:
    derived = batch_id and len(item) == 3 and item.get("task_id") == Identity(batch_id).of(item["index"])
    return {"index": item["index"], "status": item["status"]} if derived else item


def _with_id(batch_id: str | None, item: Item) -> Item:
    if batch_id is None or item.keys() != {"index", "status"}:
        return item
    return {"index": item["index"], "task_id": Identity(batch_id).of(item["index"]), "status": item["status"]}
