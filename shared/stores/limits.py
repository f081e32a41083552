"""Limits: how many tasks of a type, or with a key, may run at once, and how many may start in a time.

Claims enforce them exactly, over all workers; see `_limits.lua`. Handlers and settings declare limits; a limit set at
run time (REST, dashboard) overrides both until it is removed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from firmq.shared.domain.clock import instant
from firmq.shared.domain.decode import fits
from firmq.shared.domain.limit import Limit, check_name
from firmq.shared.redis.client import text, translated

if TYPE_CHECKING:
    from firmq.shared.redis.scripts import Scripts

_NUMBERS = ("concurrency", "count", "per", "burst")
_KINDS: Mapping[str, type] = {"source": str, "by": str, **dict.fromkeys((*_NUMBERS, "at"), float)}


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitState:
    """An effective limit: its origin, how many run under it and wait for it, and when the next may start.

    `tokens` is how many may start at once by the rate. `next_at` is None without waiting tasks, or when they wait for a
    running one to end.
    """

    name: str
    limit: Limit
    source: str
    set_at: datetime | None
    by: str
    running: int
    waiting: int
    tokens: float | None
    next_at: datetime | None


class Limits:
    """The effective limits."""

    def __init__(self, scripts: Scripts) -> None:
        self.scripts = scripts

    def all(self, *names: str) -> list[LimitState]:
        """Returns limits by name; all of them when no names are given."""
        with translated():
            rows = self.scripts.call("limit_read", *names)
        return [_state(tuple(row)) for row in rows]

    def get(self, name: str) -> LimitState | None:
        """Returns the limit of this name, or None."""
        return next(iter(self.all(name)), None)

    def put(self, name: str, limit: Limit, by: str = "") -> bool:
        """Sets a limit at run time, at once and for all workers; returns whether no such limit was set before.

        Running tasks already count; if they are too many, none is stopped, and none starts until they are fewer.
        """
        with translated():
            at = self.scripts.now_us()
            return limit_put(self.scripts, check_name(name), _stored(limit, source="api", at=at, by=by))

    def delete(self, name: str) -> bool:
        """Removes a limit; returns whether it existed.

        After a limit set at run time the declared one takes effect; a declared one is restored by the next heartbeat
        of a worker that declares it.
        """
        with translated():
            return limit_delete(self.scripts, name)

    def declare(
        self, handlers: Mapping[str, Limit | None], settings: Mapping[str, Limit], *, first: bool = True
    ) -> dict[str, Limit]:
        """Declares the limits of handlers (None: no limit) and settings, the latter first, below those set at run time.

        The latest first declaration wins; a repeated one only fills gaps. Returns the limits that were
        declared differently since.
        """
        stored = {name: _stored(limit, source="handler") if limit else "" for name, limit in handlers.items()}
        stored |= {check_name(name): _stored(limit, source="settings") for name, limit in settings.items()}
        names, others = list(stored), dict[str, str]()
        with translated():
            for at in range(0, len(names), 500):
                others |= limit_declare(self.scripts, {name: stored[name] for name in names[at : at + 500]}, first)
        return {name: _limit_of(_readable(said.encode())) for name, said in others.items()}

    def share(self, name: str, limit: Limit | None) -> None:
        """Sets (None: removes) an automatic limit, unless one is set or declared."""
        with translated():
            self.scripts.call("limit_share", name, _stored(limit, source="share") if limit else "")


def _stored(limit: Limit, **about: Any) -> str:
    fields = {"concurrency": limit.concurrency, "count": limit.count, "per": limit.per, "burst": limit.burst, **about}
    return json.dumps({name: value for name, value in fields.items() if value is not None}, sort_keys=True)


def _limit_of(fields: Mapping[str, Any]) -> Limit:
    numbers = {each: fields.get(each) for each in _NUMBERS}
    at_once = numbers["concurrency"]
    return Limit(**{**numbers, "concurrency": None if at_once is None else math.ceil(at_once)})


def _readable(stored: bytes) -> dict[str, Any]:
    """Returns the readable fields of a stored limit; the others bound nothing either (`_limits.lua`)."""
    try:
        fields = json.loads(stored)
    except (ValueError, RecursionError):
        return {}
    found = fields if isinstance(fields, dict) else {}
    return {name: value for name, value in found.items() if name in _KINDS and fits(value, _KINDS[name])}


def _state(row: tuple[bytes, bytes, int, int, bytes, bytes]) -> LimitState:
    name, stored, running, waiting, tokens, due = row
    fields = _readable(stored)
    return LimitState(
        name=text(name),
        limit=_limit_of(fields),
        source=fields.get("source", "?"),
        set_at=instant(fields["at"]) if "at" in fields else None,
        by=fields.get("by", ""),
        running=running,
        waiting=waiting,
        tokens=float(tokens) if tokens else None,
        next_at=instant(float(due)) if waiting and due and due != b"inf" else None,
    )


def limit_put(scripts: Scripts, name: str, stored: str) -> bool:
    """Sets a limit at run time; returns whether no such limit was set before."""
    return bool(scripts.call_answered("limit_put", name, stored))


def limit_delete(scripts: Scripts, name: str) -> bool:
    """Removes a limit; returns whether it existed."""
    return bool(scripts.call_answered("limit_delete", name))


def limit_declare(scripts: Scripts, limits: Mapping[str, str], first: bool) -> dict[str, str]:
    """Records declared limits ("" for none); returns those that were declared differently since."""
    others = scripts.call("limit_declare", "1" if first else "", *(part for pair in limits.items() for part in pair))
    said = [text(each) for each in others]
    return dict(zip(said[::2], said[1::2], strict=True))
