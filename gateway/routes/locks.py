"""Endpoints for locks: list, show, and forced release in an emergency."""

from __future__ import annotations

from datetime import datetime, timedelta

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from firmq.gateway.auth.authenticator import actor
from firmq.gateway.http import errors
from firmq.gateway.http.across import Across
from firmq.gateway.http.endpoints import Answer, Reply, endpoint
from firmq.gateway.schemas.values import NextCursor, View
from firmq.shared.domain.values import Body
from firmq.shared.redis.keys import Keys
from firmq.shared.stores.api_keys import Scope
from firmq.shared.stores.locks import LEADER, LockAdmin, LockInfo
from firmq.shared.submission import refusals
from firmq.shared.submission.refusals import Refusal


class LockView(View):
    """The current state of a lock."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    name: str = Field(
        description="Housekeeping job that it protects (`metrics` is the leader's); locks of handlers begin with task."
    )
    lock_key: str = Field(description="Key of the lock in Redis.")
    locked: bool
    remaining_time: int = Field(description="Milliseconds until it expires, unless its holder renews it.")
    owner: str | None = Field(description="Housekeeper or task that holds it.")
    thread_id: int | None = Field(description="Thread of the owner that acquired it.")
    fencing_token: str | None = Field(description="Required by a forced release; new for every holder.")
    fencing_number: int | None = Field(
        description="Fencing token: increases with every acquisition; while the lock is free, the last holder's."
    )
    acquired_at: datetime | None


class LockList(View):
    """Locks by name."""

    items: list[LockView]
    next_cursor: NextCursor = None


class UnlockBody(Body):
    """The reason for a forced release, and the holder that is meant."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    reason: str = Field(description="Kept in the audit record.", min_length=1, max_length=500)
    fencing_token: str = Field(description="`fencingToken` as shown by GET /admin/locks.", min_length=1, max_length=100)


class StepDownBody(Body):
    """The reason for ending the leader's term."""

    reason: str = Field(description="Kept in the audit record.", min_length=1, max_length=500)


class Unlocked(View):
    """A released lock and its last owner."""

    name: str
    unlocked: bool
    owner: str


class LockRoutes:
    """Locks can be shown and released, never acquired, over the API."""

    def __init__(self, admin: LockAdmin) -> None:
        self.admin = admin

    @endpoint(
        "GET",
        "/admin/locks",
        Across.LOCKS,
        tag="locks",
        answers={200: Answer(description="All locks.", model=LockList)},
    )
    def all(self) -> Reply:
        """Lists the locks of housekeeping and of handlers with owner, acquisition time and remaining time."""
        return Reply(content=LockList(items=[_view(each, self.admin.scripts.keys) for each in self.admin.all()]))

    @endpoint(
        "GET",
        "/admin/locks/{name}",
        Across.HOLDER,
        tag="locks",
        answers={200: Answer(description="The lock.", model=LockView)},
        problems=(refusals.NOT_FOUND,),
    )
    def get(self, name: str) -> Reply:
        """Shows one lock."""
        return Reply(content=_view(self._find(name), self.admin.scripts.keys))

    @endpoint(
        "DELETE",
        "/admin/locks/{name}",
        Across.HOLDER,
        tag="locks",
        scope=Scope.ADMIN,
        body=UnlockBody,
        answers={200: Answer(description="The lock is free.", model=Unlocked)},
        problems=(refusals.NOT_FOUND, errors.LOCK_CHANGED),
    )
    def unlock(self, name: str, body: UnlockBody) -> Reply:
        """Releases a lock by force. Its holder's writes are refused immediately; it stops at its next renewal."""
        self._find(name)
        owner = self.admin.force(name, body.fencing_token, actor(), body.reason)
        return Reply(content=Unlocked(name=name, unlocked=True, owner=owner))

    @endpoint(
        "POST",
        "/admin/leader/step-down",
        Across.STEP_DOWN,
        tag="locks",
        scope=Scope.ADMIN,
        body=StepDownBody,
        answers={200: Answer(description="The leader's term has ended.", model=Unlocked)},
        problems=(errors.LOCK_CHANGED,),
    )
    def step_down(self, body: StepDownBody) -> Reply:
        """Ends the leader's term. Another housekeeper takes over; this one may lead again after ten seconds."""
        owner = self.admin.step_down(actor(), body.reason)
        return Reply(content=Unlocked(name=LEADER, unlocked=True, owner=owner))

    def _find(self, name: str) -> LockInfo:
        found = self.admin.get(name)
        if found is None:
            raise Refusal(refusals.NOT_FOUND, f"no lock is named {name}: GET /admin/locks lists them")
        return found


def _view(lock: LockInfo, keys: Keys) -> LockView:
    return LockView(
        name=lock.name,
        lock_key=keys.lock(lock.name),
        locked=lock.locked,
        remaining_time=lock.remaining // timedelta(milliseconds=1),
        owner=lock.owner,
        thread_id=lock.thread_id,
        fencing_token=lock.token,
        fencing_number=lock.fence,
        acquired_at=lock.acquired_at,
    )
