"""Endpoints for task types, as published by workers."""

from __future__ import annotations

from taskqueue.gateway import present, schemas
from taskqueue.gateway.http.endpoints import Answer, Reply, endpoint
from taskqueue.shared.domain.retry import RetryPolicy
from taskqueue.shared.submission import refusals
from taskqueue.shared.submission.refusals import Refusal
from taskqueue.shared.submission.type_cache import TypeCache


class TypeRoutes:
    """Registered task types."""

    def __init__(self, type_cache: TypeCache, policy: RetryPolicy) -> None:
        self.type_cache = type_cache
        self.policy = policy

    @endpoint(
        "GET", "/types", tag="types", answers={200: Answer(description="All task types.", model=schemas.TypeList)}
    )
    def all(self) -> Reply:
        """Lists the task types with the JSON Schema of their data."""
        items = [present.task_type(each, offer, self.policy) for each, offer in self.type_cache.offers()]
        return Reply(content=schemas.TypeList(items=items))

    @endpoint(
        "GET",
        "/types/{name}",
        tag="types",
        answers={200: Answer(description="The task type.", model=schemas.TypeView)},
        problems=(refusals.NOT_FOUND,),
    )
    def one(self, name: str) -> Reply:
        """Shows one task type."""
        found, offer = self.type_cache.get(name), self.type_cache.offer(name)
        if found is None or offer is None:
            raise Refusal(refusals.NOT_FOUND, f"no worker has registered a task type {name}: GET /types lists all")
        return Reply(content=present.task_type(found, offer, self.policy))
