"""Reads the dead letters by failure group. The scripts keep the index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from firmq.shared.domain.clock import instant
from firmq.shared.domain.decode import UNREADABLE
from firmq.shared.domain.strict_json import load_anything
from firmq.shared.redis.client import text, translated

if TYPE_CHECKING:
    from firmq.shared.redis.scripts import Scripts


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Dead letters with one fingerprint; `message` is the latest one, `pattern` the part that all their messages share.

    `first_at` is when the group was first seen, even if that dead letter has been retried since.
    """

    key: str
    count: int
    type: str
    error: str
    place: str
    pattern: str
    message: str
    first_at: datetime
    last_at: datetime


class FailureGroups:
    """The failure groups, the most frequent first. The cost depends on how many are requested."""

    def __init__(self, scripts: Scripts) -> None:
        self.scripts = scripts

    def page(self, offset: int, limit: int) -> tuple[list[FailureGroup], int]:
        """Returns some groups, and how many there are."""
        with translated():
            total, *rows = self.scripts.call("failure_groups", "", offset, limit)
        return [_group(*row) for row in rows], int(total)

    def many(self, keys: Sequence[str]) -> list[FailureGroup]:
        """Returns these groups, except groups without dead letters."""
        if not keys:
            return []
        with translated():
            answers = self.scripts.call_many([("failure_groups", (key, 0, 1)) for key in keys])
        return [_group(*row) for _, *rows in answers for row in rows]

    def get(self, key: str) -> FailureGroup | None:
        """Returns one group, or None when none of its dead letters is left."""
        with translated():
            _, *rows = self.scripts.call("failure_groups", key, 0, 1)
        return next((_group(*row) for row in rows), None)


def _group(name: bytes, count: int, first: bytes, last: bytes, kind: bytes, error: bytes) -> FailureGroup:
    about = _about(error)
    return FailureGroup(
        key=text(name),
        count=count,
        type=text(kind) or "?",
        error=about.get("type", "CorruptRecord"),
        place=about.get("place", ""),
        pattern=about.get("pattern", ""),
        message=about.get("message", "the records of these tasks cannot be read"),
        first_at=instant(float(first)),
        last_at=instant(float(last)),
    )


def _about(error: bytes) -> dict[str, str]:
    try:
        fields = load_anything(error or b"{}")
        return {str(name): str(value) for name, value in fields.items()}
    except UNREADABLE:
        return {}
