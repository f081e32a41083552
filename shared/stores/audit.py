"""The audit record: who did what, to what, and why; bounded and shared by all components through which users act."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from redis.exceptions import ResponseError

from taskqueue.shared.domain.clock import instant
from taskqueue.shared.errors import StoreUnavailable
from taskqueue.shared.redis.client import keys_of, text, translated
from taskqueue.shared.redis.scripts import Scripts

if TYPE_CHECKING:
    from redis import Redis

log = logging.getLogger(__name__)

KEPT = 10_000
LONGEST = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One action of a user."""

    id: str
    at: datetime
    who: str
    what: str
    about: str
    detail: str


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

    def page(self, limit: int, before: str | None = None) -> tuple[list[AuditEntry], str | None]:
        """Returns some entries, and the cursor of the next page (None at the end)."""
        with translated():
            latest = f"({before}" if before else "+"
            rows = self.redis.xrevrange(keys_of(self.redis).AUDIT, max=latest, count=limit + 1) or []
        entries = [_read(text(entry_id), fields or {}) for entry_id, fields in rows[:limit]]
        return entries, entries[-1].id if len(rows) > limit else None


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
