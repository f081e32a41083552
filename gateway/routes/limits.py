"""Endpoints for limits: how many tasks of a type or with a limit_key run at once, and how many start per time."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from firmq.gateway.auth.authenticator import actor
from firmq.gateway.http.across import Across
from firmq.gateway.http.endpoints import Answer, AuditAction, Reply, endpoint
from firmq.gateway.schemas.values import NextCursor, View
from firmq.shared.domain.limit import read_limit
from firmq.shared.domain.values import Body
from firmq.shared.stores.api_keys import Scope
from firmq.shared.stores.limits import Limits, LimitState
from firmq.shared.submission import refusals
from firmq.shared.submission.refusals import Refusal


class LimitBody(Body):
    """A limit. Without concurrency and rate, it lifts the limit declared by a handler or the settings."""

    concurrency: int | None = Field(
        None, ge=0, le=1_000_000, description="Maximum tasks running at once, over all workers."
    )
    rate: str | None = Field(None, max_length=50, description="Maximum starts per time: 10/s, 100/m, 1/10s.")
    burst: float | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="Maximum starts at once after a pause; null: the number that the rate allows in 0.25 s.",
    )


class LimitView(View):
    """A limit in force, with its current use."""

    name: str = Field(description="type:NAME or key:NAME.")
    concurrency: int | None
    rate: str | None
    burst: float | None
    source: str = Field(description="Origin: api, settings, handler, or share when housekeeping set it.")
    set_at: datetime | None
    running: int = Field(description="Running tasks under the limit.")
    waiting: int = Field(description="Pending tasks throttled by the limit.")
    tokens: float | None = Field(description="Starts that the rate currently allows.")
    next_at: datetime | None = Field(description="When the rate allows the next start, if a task waits for it.")


class LimitList(View):
    """Limits by name."""

    items: list[LimitView]
    next_cursor: NextCursor = None


class LimitRemoved(View):
    """A limit that was removed; a declared one applies again."""

    name: str
    removed: Literal[True]


_SHOWN = {200: Answer(description="The limit.", model=LimitView)}
_PUT = {
    200: Answer(description="The limit that was set before is replaced.", model=LimitView),
    201: Answer(description="The limit is new, or overrides a declared one.", model=LimitView),
}
_GONE = {200: Answer(description="The limit is removed; a declared one applies again.", model=LimitRemoved)}


class LimitRoutes:
    """Changes take effect immediately on all workers; running tasks continue."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits

    @endpoint(
        "GET",
        "/limits",
        Across.BY_NAME,
        tag="limits",
        answers={200: Answer(description="All limits.", model=LimitList)},
    )
    def all(self) -> Reply:
        """Lists the limits in force with origin, running tasks and waiting tasks."""
        return Reply(content=LimitList(items=[_view(each) for each in self.limits.all()]))

    @endpoint("GET", "/limits/types/{name}", Across.ONE, tag="limits", answers=_SHOWN, problems=(refusals.NOT_FOUND,))
    def of_type(self, name: str) -> Reply:
        """Shows the limit of a task type."""
        return self._show(f"type:{name}")

    @endpoint(
        "PUT",
        "/limits/types/{name}",
        Across.ALL,
        tag="limits",
        scope=Scope.OPERATE,
        act=AuditAction("set limit", "type:{name}"),
        body=LimitBody,
        answers=_PUT,
    )
    def put_of_type(self, name: str, body: LimitBody) -> Reply:
        """Sets the limit of a task type. Running tasks count."""
        return self._put(f"type:{name}", body)

    @endpoint(
        "DELETE",
        "/limits/types/{name}",
        Across.ALL,
        tag="limits",
        scope=Scope.OPERATE,
        act=AuditAction("removed limit", "type:{name}"),
        answers=_GONE,
        problems=(refusals.NOT_FOUND,),
    )
    def delete_of_type(self, name: str) -> Reply:
        """Removes the limit of a task type. A limit declared by its handler or the settings applies again."""
        return self._delete(f"type:{name}")

    @endpoint("GET", "/limits/keys/{name}", Across.ONE, tag="limits", answers=_SHOWN, problems=(refusals.NOT_FOUND,))
    def of_key(self, name: str) -> Reply:
        """Shows the limit of tasks with a limit_key."""
        return self._show(f"key:{name}")

    @endpoint(
        "PUT",
        "/limits/keys/{name}",
        Across.ALL,
        tag="limits",
        scope=Scope.OPERATE,
        act=AuditAction("set limit", "key:{name}"),
        body=LimitBody,
        answers=_PUT,
    )
    def put_of_key(self, name: str, body: LimitBody) -> Reply:
        """Sets the limit of tasks with a limit_key, of any type."""
        return self._put(f"key:{name}", body)

    @endpoint(
        "DELETE",
        "/limits/keys/{name}",
        Across.ALL,
        tag="limits",
        scope=Scope.OPERATE,
        act=AuditAction("removed limit", "key:{name}"),
        answers=_GONE,
        problems=(refusals.NOT_FOUND,),
    )
    def delete_of_key(self, name: str) -> Reply:
        """Removes the limit of tasks with a limit_key. A limit declared in the settings applies again."""
        return self._delete(f"key:{name}")

    def _show(self, name: str) -> Reply:
        found = self.limits.get(name)
        if found is None:
            raise _unknown(name)
        return Reply(content=_view(found))

    def _put(self, name: str, body: LimitBody) -> Reply:
        try:
            limit = read_limit(body.model_dump(exclude_none=True))
            new = self.limits.put(name, limit, actor())
        except ValueError as error:
            raise refusals.invalid([refusals.field_error((), str(error))]) from None
        many = "any number" if limit.concurrency is None else limit.concurrency
        noted = f"at once: {many}, rate: {limit.rate or 'any'}"
        return Reply(content=self._show(name).content, status=201 if new else 200, noted=noted)

    def _delete(self, name: str) -> Reply:
        if not self.limits.delete(name):
            raise _unknown(name)
        return Reply(content=LimitRemoved(name=name, removed=True))


def _unknown(name: str) -> Refusal:
    return Refusal(refusals.NOT_FOUND, f"no limit is named {name}: GET /limits lists them")


def _view(state: LimitState) -> LimitView:
    return LimitView(
        name=state.name,
        concurrency=state.limit.concurrency,
        rate=state.limit.rate,
        burst=state.limit.burst,
        source=state.source,
        set_at=state.set_at,
        running=state.running,
        waiting=state.waiting,
        tokens=state.tokens,
        next_at=state.next_at,
    )
