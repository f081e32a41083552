"""The audit record: actor, action, object and reason; bounded, shared by all components through which users act."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from redis.exceptions import ResponseError

from firmq.shared.domain import strict_json
from firmq.shared.domain.clock import instant, instant_us
from firmq.shared.domain.csv_lines import csv_lines
from firmq.shared.errors import StoreUnavailable
from firmq.shared.redis.client import keys_of, text, translated
from firmq.shared.redis.scripts import Scripts

if TYPE_CHECKING:
    from redis import Redis

log = logging.getLogger(__name__)

KEPT = 10_000
LONGEST = 500
CHUNK = 500
"""Entries that one command reads."""
_COLUMNS = ["id", "at", "who", "what", "about", "detail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One action of a user."""

    id: str
    at: datetime
    who: str
    what: str
    about: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Selects entries: `who`, `what` and `about` match parts of these fields, in any case."""

    who: str | None = None
    what: str | None = None
    about: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def matches(self, entry: AuditEntry) -> bool:
        """Returns whether an entry has the wanted texts."""
        pairs = ((self.who, entry.who), (self.what, entry.what), (self.about, entry.about))
        return all(part is None or part.lower() in whole.lower() for part, whole in pairs)


class Audit:
    """The audit record, newest first. It keeps the last ten thousand entries."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis

    def record(self, who: str, what: str, about: str, detail: str = "") -> None:
        """Adds an entry; long texts are cut. If that fails it is logged instead: the action is not undone."""
        entry = (who[:LONGEST], what, about[:LONGEST], detail[:LONGEST])
        try:
            with translated():
                Scripts(self.redis).call("audit", KEPT, *entry)
        except (StoreUnavailable, ResponseError) as error:
            lacking = dict(zip(("who", "what", "about", "detail"), entry, strict=True))
            log.warning("audit entry not stored", extra={**lacking, "why": str(error)})

    def page(
        self, limit: int, before: str | None = None, wanted: AuditFilter | None = None
    ) -> tuple[list[AuditEntry], str | None]:
        """Returns some entries, and the cursor of the next page (None at the end)."""
        found = list(islice(self.entries(wanted or AuditFilter(), before), limit + 1))
        return found[:limit], found[limit - 1].id if len(found) > limit else None

    def entries(self, wanted: AuditFilter, before: str | None = None) -> Iterator[AuditEntry]:
        """Yields all matching entries, newest first; `before` is the id of an entry."""
        latest = f"({before}" if before else f"{_milliseconds(wanted.until) - 1}" if wanted.until else "+"
        earliest = f"{_milliseconds(wanted.since)}" if wanted.since else "-"
        while True:
            with translated():
                rows = self.redis.xrevrange(keys_of(self.redis).AUDIT, latest, earliest, CHUNK) or []
            for entry_id, fields in rows:
                if wanted.matches(entry := _read(text(entry_id), fields or {})):
                    yield entry
            if len(rows) < CHUNK:
                return
            latest = f"({text(rows[-1][0])}"


def as_csv(entries: Iterable[AuditEntry]) -> Iterator[bytes]:
    """Yields the lines of a CSV file."""
    return csv_lines(chain([_COLUMNS], (_cells(each) for each in entries)))


def as_json_lines(entries: Iterable[AuditEntry]) -> Iterator[bytes]:
    """Yields each entry as a JSON object on a line."""
    for each in entries:
        yield strict_json.dump_anything(dict(zip(_COLUMNS, _cells(each), strict=True))) + b"\n"


def _cells(entry: AuditEntry) -> list[str]:
    return [entry.id, entry.at.isoformat(), entry.who, entry.what, entry.about, entry.detail]


def _milliseconds(at: datetime) -> int:
    return max(1, instant_us(at) // 1000)


def _read(entry_id: str, fields: Mapping[Any, Any]) -> AuditEntry:
    about = {text(name): text(value) for name, value in fields.items()}
    return AuditEntry(
        id=entry_id,
        at=instant(int(entry_id.partition("-")[0]) * 1000),
        who=about.get("who", ""),
        what=about.get("what", ""),
        about=about.get("about", ""),
        detail=about.get("detail", ""),
    )
