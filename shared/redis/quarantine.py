"""Quarantine of corrupt keys, so that they stop no other work: they are moved, counted and shown.

A script that meets a key of another type, or an unreadable value, is rerun with `_quarantine.lua` in front. Recovery
checks the keys of the whole system in every run, for code that only reads. Quarantined keys are kept for a week; the
content of a list or an index is rebuilt from the records (`check_consistency.lua`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from firmq.shared.domain.task import TaskState
from firmq.shared.redis.keys import of_features

if TYPE_CHECKING:
    from firmq.shared.redis.keys import Keys


@cache
def single(keys: Keys) -> Mapping[str, str]:
    """Returns the keys that exist once, with their types. The schema version is never repaired."""
    spaces = (keys, *of_features(keys))
    named = {getattr(each, name): kind for each in spaces for name, kind in each.kinds().items()}
    return named | {keys.ended(state): "zset" for state in TaskState if state.ended}


@cache
def of_queue(keys: Keys) -> Mapping[str, str]:
    """Returns the prefixes of the keys that each queue has, with their types."""
    sorted_sets = (
        *(keys.rq_started, keys.rq_scheduled, keys.rq_deferred, keys.rq_finished, keys.rq_failed, keys.rq_canceled),
        *(keys.pending, keys.scheduled, keys.retrying, keys.throttled, keys.last_turn, keys.foreign),
    )
    others = {keys.rq_queue(""): "list", keys.wakeup(""): "list", keys.rq_workers(""): "set"}
    return others | {key(""): "zset" for key in sorted_sets}


_OTHER_ERRORS = (
    *("OUTLIVED", "FORMAT", "PLACEMENT", "MISCONF", "NOREPLICAS", "MASTERDOWN"),
    *("LOADING", "READONLY", "OOM", "NOPERM", "ACL failure", "BUSY", "UNBLOCKED"),
)


def is_corruption(error: Exception) -> bool:
    """Returns whether a script failed because of corrupt data, not because of the server or its caller."""
    from redis.exceptions import ResponseError  # on first use: see `client.py`

    said = str(error)
    return type(error) is ResponseError and not any(word in said for word in _OTHER_ERRORS)


def raise_unless_corruption(error: Exception) -> None:
    """Raises the error unless it is caused by a corrupt key."""
    if not is_corruption(error):
        raise error


def without_corrupt(rows: Sequence[Any], instead: object) -> list[Any]:
    """Returns the answers of a pipeline, with a substitute for corrupt ones. Raises any other error."""
    for row in rows:
        if isinstance(row, Exception):
            raise_unless_corruption(row)
    return [instead if isinstance(row, Exception) else row for row in rows]
