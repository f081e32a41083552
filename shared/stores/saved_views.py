"""Saved views: named filters of the list of tasks, of one user or shared with all.

Their number is bounded, and a view that was not used for `KEPT` is removed: its user may be gone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from taskqueue.shared.domain.clock import to_us
from taskqueue.shared.domain.decode import UNREADABLE, as_declared
from taskqueue.shared.redis.client import raw, text, translated

if TYPE_CHECKING:
    from taskqueue.shared.redis.scripts import Scripts

MOST = 300
MOST_OF_USER = 30
LONGEST = 60
"""Characters of a name."""
MOST_BYTES = 2000
"""Bytes of the filter of a view."""
KEPT = timedelta(days=400)
_TOUCH = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedView:
    """A filter with a name. `query` has the fields of the list of tasks; times are in microseconds."""

    id: str
    name: str
    query: Mapping[str, str]
    owner: str
    shared: bool
    used_at: int


class SavedViews:
    """The views of all users."""

    def __init__(self, scripts: Scripts) -> None:
        self.scripts = scripts

    def all(self) -> list[SavedView]:
        """Returns the views in use, by name; corrupt ones are left out."""
        oldest = self.scripts.now_us() - to_us(KEPT)
        found = [each for each in self._read().values() if each and each.used_at > oldest]
        return sorted(found, key=lambda each: (each.name.casefold(), each.owner))

    def save(self, name: str, query: Mapping[str, str], owner: str, *, shared: bool) -> SavedView:
        """Stores a view, in place of one of the same name of this user.

        Raises ValueError for an invalid one, and for one too many.
        """
        if not 1 <= len(name) <= LONGEST or not name.isprintable():
            raise ValueError(f"the name of a view must have 1 to {LONGEST} printable characters")
        if not query or len(json.dumps(dict(query))) > MOST_BYTES:
            raise ValueError("a view needs a filter that is not too long: search for something, or shorten the search")
        key, now = self.scripts.keys.SAVED_VIEWS, self.scripts.now_us()
        view_id = hashlib.sha256(f"{owner}\0{name}".encode()).hexdigest()[:16]
        view = SavedView(id=view_id, name=name, query=dict(query), owner=owner, shared=shared, used_at=now)
        stored = self._read()
        gone = [each for each, found in stored.items() if found is None or found.used_at <= now - to_us(KEPT)]
        others = [found for each, found in stored.items() if found and each not in (view_id, *gone)]
        if len(others) >= MOST or sum(each.owner == owner for each in others) >= MOST_OF_USER:
            raise ValueError(f"there are at most {MOST_OF_USER} views of a user and {MOST} of all: delete one first")
        with translated():
            if gone:
                self.scripts.redis.hdel(key, *gone)
            self.scripts.redis.hset(key, view_id, json.dumps(asdict(view)))
        return view

    def get(self, view_id: str) -> SavedView | None:
        """Returns a view; None if there is none."""
        return next((each for each in self.all() if each.id == view_id), None)

    def use(self, view: SavedView) -> None:
        """Records that a view is used, once a day."""
        now = self.scripts.now_us()
        if now - view.used_at > to_us(_TOUCH):
            record = json.dumps({**asdict(view), "used_at": now})
            with translated():
                self.scripts.redis.hset(self.scripts.keys.SAVED_VIEWS, view.id, record)

    def delete(self, view_id: str) -> None:
        """Removes a view."""
        with translated():
            self.scripts.redis.hdel(self.scripts.keys.SAVED_VIEWS, view_id)

    def _read(self) -> dict[str, SavedView | None]:
        key = self.scripts.keys.SAVED_VIEWS
        with self.scripts.quarantining({key: "hash"}):
            return {text(name): _view(raw(entry)) for name, entry in self.scripts.redis.hgetall(key).items()}


def _view(entry: bytes) -> SavedView | None:
    try:
        return as_declared(SavedView(**json.loads(entry)))
    except UNREADABLE:
        return None
