"""The dead letters by what they died of. Nothing here changes anything; the scripts keep the index."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from shared import keys
from shared.clock import instant
from shared.redis_client import text, translated

if TYPE_CHECKING:
    from redis import Redis


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseGroup:
    """Dead letters of one cause; `message` is that of the latest, `pattern` what all their messages share."""

    key: str
    count: int
    type: str
    error: str
    place: str
    pattern: str
    message: str
    first_at: datetime
    last_at: datetime


class CauseGroups:
    """The causes of the dead letters, the commonest first. What it costs depends on how many are asked for."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis

    def page(self, offset: int, limit: int) -> tuple[list[CauseGroup], int]:
        """Some causes, and how many there are."""
        with translated():
            with self.redis.pipeline(transaction=False) as pipeline:
                pipeline.zrevrange(keys.CAUSES, offset, offset + limit - 1)
                pipeline.zcard(keys.CAUSES)
                names, total = pipeline.execute()
            return self._read([text(name) for name in names]), total

    def get(self, key: str) -> CauseGroup | None:
        """One cause, or None when none of its dead letters is left."""
        with translated():
            return next(iter(self._read([key])), None)

    def cause_of(self, task_id: str) -> str | None:
        """The cause that a dead letter is filed under."""
        with translated():
            found = self.redis.hget(keys.CAUSE_OF, task_id)
        return text(found) if found else None

    def _read(self, names: Sequence[str]) -> list[CauseGroup]:
        with self.redis.pipeline(transaction=False) as pipeline:
            for name in names:
                pipeline.zcard(keys.cause(name))
                pipeline.zrange(keys.cause(name), 0, 0, withscores=True)
                pipeline.zrange(keys.cause(name), -1, -1, withscores=True)
            rows = list(zip(*[iter(pipeline.execute())] * 3, strict=True))
        living = [(name, *row) for name, row in zip(names, rows, strict=True) if row[0] and row[1] and row[2]]
        with self.redis.pipeline(transaction=False) as pipeline:
            for *_, last in living:
                pipeline.hmget(keys.rq_job(text(last[0][0])), "description", "error")
            records = pipeline.execute(raise_on_error=False)
        return [
            _group(name, count, first[0][1], last[0][1], record)
            for (name, count, first, last), record in zip(living, records, strict=True)
        ]


def _group(name: str, count: int, first: float, last: float, record: Any) -> CauseGroup:
    kind, error = record if isinstance(record, list) else (None, None)
    about = _about(error)
    return CauseGroup(
        key=name,
        count=count,
        type=text(kind) if kind else "?",
        error=about.get("type", "CorruptRecord"),
        place=about.get("place", ""),
        pattern=about.get("pattern", ""),
        message=about.get("message", "the records of these tasks cannot be read"),
        first_at=instant(first),
        last_at=instant(last),
    )


def _about(error: bytes | None) -> dict[str, str]:
    try:
        fields = json.loads(error or b"{}")
        return {str(name): str(value) for name, value in fields.items()}
    except (ValueError, AttributeError):
        return {}
