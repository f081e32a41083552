"""The limits: how many tasks of a type or with a key run at once, and how many start in a time."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from gateway.auth.authenticator import actor
from gateway.http import errors
from gateway.http.endpoints import Answer, AuditAction, Reply, endpoint
from gateway.http.errors import Refusal
from gateway.schemas.values import Body, NextCursor, View
from shared.stores.api_keys import Scope
from shared.stores.limits import Limits, LimitState, read_limit


class LimitBody(Body):
    """A limit. With neither a concurrency nor a rate it lifts the one that a handler or the settings declare."""

    concurrency: int | None = Field(None, ge=0, le=1_000_000, description="How many run at once, over all workers.")
    rate: str | None = Field(None, max_length=50, description="How many start in a time: 10/s, 100/m, 1/10s.")
    burst: float | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="How many may start at once after a pause; none: as many as come in a quarter of a second.",
    )


class LimitView(View):
    """A limit in force, and who is under it."""

    name: str = Field(description="type:NAME or key:NAME.")
    concurrency: int | None
    rate: str | None
    burst: float | None
    source: str = Field(description="Who says so: api, settings, handler, or share for what housekeeping sets.")
    set_at: datetime | None
    running: int = Field(description="Tasks that run under it.")
    waiting: int = Field(description="Pending tasks that stand aside for it.")
    tokens: float | None = Field(description="How many may start at once by the rate.")
    next_at: datetime | None = Field(description="When its rate lets the next one start, if one waits for that.")


class LimitList(View):
    """The limits by name."""

    items: list[LimitView]
    next_cursor: NextCursor = None


class LimitRemoved(View):
    """A limit that is no more, or not as it was set by hand."""

    name: str
    removed: Literal[True]


_SHOWN = {200: Answer(description="The limit.", model=LimitView)}
_PUT = {
    200: Answer(description="It was set by hand before; it is as the body says now.", model=LimitView),
    201: Answer(description="It is new, or stands above a declared one now.", model=LimitView),
}
_GONE = {200: Answer(description="It is removed; a declared one holds again.", model=LimitRemoved)}


class LimitRoutes:
    """Changes hold at once, for every worker; what runs goes on."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits

    @endpoint("GET", "/limits", tag="limits", answers={200: Answer(description="All limits.", model=LimitList)})
    def all(self) -> Reply:
        """Lists the limits in force: who set each, how many tasks run under it, and how many wait."""
        return Reply(content=LimitList(items=[_view(each) for each in self.limits.all()]))

    @endpoint("GET", "/limits/types/{name}", tag="limits", answers=_SHOWN, problems=(errors.NOT_FOUND,))
    def of_type(self, name: str) -> Reply:
        """Shows the limit of a task type."""
        return self._show(f"type:{name}")

    @endpoint(
        "PUT",
        "/limits/types/{name}",
        tag="limits",
        scope=Scope.OPERATE,
        act=AuditAction("set limit", "type:{name}"),
        body=LimitBody,
        answers=_PUT,
    )
    def put_of_type(self, name: str, body: LimitBody) -> Reply:
        """Sets the limit of a task type. Tasks that run already count."""
        return self._put(f"type:{name}", body)

    @endpoint(
        "DELETE",
        "/limits/types/{name}",
        tag="limits",
        scope=Scope.OPERATE,
        act=AuditAction("removed limit", "type:{name}"),
        answers=_GONE,
        problems=(errors.NOT_FOUND,),
    )
    def delete_of_type(self, name: str) -> Reply:
        """Removes the limit of a task type. One that its handler or the settings declare holds again."""
        return self._delete(f"type:{name}")

    @endpoint("GET", "/limits/keys/{name}", tag="limits", answers=_SHOWN, problems=(errors.NOT_FOUND,))
    def of_key(self, name: str) -> Reply:
        """Shows the limit of tasks with a limit_key."""
        return self._show(f"key:{name}")

    @endpoint(
        "PUT",
        "/limits/keys/{name}",
        tag="limits",
        scope=Scope.OPERATE,
        act=AuditAction("set limit", "key:{name}"),
        body=LimitBody,
        answers=_PUT,
    )
    def put_of_key(self, name: str, body: LimitBody) -> Reply:
        """Sets the limit of tasks with a limit_key, whatever their type."""
        return self._put(f"key:{name}", body)

    @endpoint(
        "DELETE",
        "/limits/keys/{name}",
        tag="limits",
        scope=Scope.OPERATE,
        act=AuditAction("removed limit", "key:{name}"),
        answers=_GONE,
        problems=(errors.NOT_FOUND,),
    )
    def delete_of_key(self, name: str) -> Reply:
        """Removes the limit of tasks with a limit_key. One that the settings declare holds again."""
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
            raise errors.invalid([errors.field_error((), str(error))]) from None
        many = "any number" if limit.concurrency is None else limit.concurrency
        noted = f"at once: {many}, rate: {limit.rate or 'any'}"
        return Reply(content=self._show(name).content, status=201 if new else 200, noted=noted)

    def _delete(self, name: str) -> Reply:
        if not self.limits.delete(name):
            raise _unknown(name)
        return Reply(content=LimitRemoved(name=name, removed=True))


def _unknown(name: str) -> Refusal:
    return Refusal(errors.NOT_FOUND, f"there is no limit {name}: GET /limits lists them")


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
