"""Endpoints for task types, as published by workers: list, show, pause, resume."""

from __future__ import annotations

from firmq.gateway import present, schemas
from firmq.gateway.http.across import Across
from firmq.gateway.http.endpoints import Answer, AuditAction, Reply, endpoint
from firmq.gateway.routes.queues import pause
from firmq.shared.domain.retry import RetryPolicy
from firmq.shared.stores.api_keys import Scope
from firmq.shared.stores.pauses import Pauses, of_type
from firmq.shared.submission import refusals
from firmq.shared.submission.refusals import Refusal
from firmq.shared.submission.type_cache import TypeCache

_SHOWN = {200: Answer(description="The task type.", model=schemas.TypeView)}


class TypeRoutes:
    """Registered task types."""

    def __init__(self, type_cache: TypeCache, policy: RetryPolicy, pauses: Pauses) -> None:
        self.type_cache = type_cache
        self.policy = policy
        self.pauses = pauses

    @endpoint(
        "GET",
        "/types",
        Across.BY_NAME,
        tag="types",
        answers={200: Answer(description="All task types.", model=schemas.TypeList)},
    )
    def all(self) -> Reply:
        """Lists the task types with the JSON Schema of their data."""
        paused = self.pauses.types()
        items = [
            present.task_type(each, offer, self.policy, paused.get(each.name))
            for each, offer in self.type_cache.offers()
        ]
        return Reply(content=schemas.TypeList(items=items))

    @endpoint("GET", "/types/{name}", Across.ONE, tag="types", answers=_SHOWN, problems=(refusals.NOT_FOUND,))
    def one(self, name: str) -> Reply:
        """Shows one task type."""
        return Reply(content=self._view(name))

    @endpoint(
        "POST",
        "/types/{name}/pause",
        Across.ALL,
        tag="types",
        scope=Scope.OPERATE,
        act=AuditAction("paused type", "{name}"),
        body=schemas.PauseBody,
        answers={200: Answer(description="The type is paused.", model=schemas.TypeView)},
        problems=(refusals.NOT_FOUND,),
    )
    def pause(self, name: str, body: schemas.PauseBody) -> Reply:
        """Pauses a task type: workers start none of its tasks. Running tasks continue, submissions are accepted."""
        self._view(name)
        noted = pause(self.pauses, of_type(name), body)
        return Reply(content=self._view(name), noted=noted)

    @endpoint(
        "POST",
        "/types/{name}/resume",
        Across.ALL,
        tag="types",
        scope=Scope.OPERATE,
        act=AuditAction("resumed type", "{name}"),
        answers={200: Answer(description="The type is not paused.", model=schemas.TypeView)},
        problems=(refusals.NOT_FOUND,),
    )
    def resume(self, name: str) -> Reply:
        """Resumes a task type: workers start its tasks again."""
        self._view(name)
        self.pauses.resume(of_type(name))
        return Reply(content=self._view(name))

    def _view(self, name: str) -> schemas.TypeView:
        """Returns a type. Raises Refusal: 404 for an unknown one."""
        found, offer = self.type_cache.get(name), self.type_cache.offer(name)
        if found is None or offer is None:
            raise Refusal(refusals.NOT_FOUND, f"no worker has registered a task type {name}: GET /types lists all")
        return present.task_type(found, offer, self.policy, self.pauses.types().get(name))
