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
    sets = (keys.RQ_QUEUES, keys.ADOPTED_LANES, keys.RQ_WORKERS, keys.CONCURRENT_TYPES, keys.FAIR)
    hashes = (
        *(keys.UNIQUE, keys.LIMITS, keys.LIMITS_DECLARED, keys.FAILURE_GROUP_OF, keys.HISTORY, keys.PAUSED),
        *(keys.QUEUE_CREATORS, keys.RECOVERY_CURSOR, keys.TYPES_OF, keys.TYPE_VERSIONS),
        *(keys.RQ_ADOPTED, keys.LOCK_FENCES, keys.ALERTS, keys.ALERT_MESSAGES, keys.REAPER),
    )
    sorted_sets = (
        *(keys.TASKS, keys.BLOCKED, keys.AWAITING, keys.DEFERRED_WORK, keys.LEASES, keys.DEADLINES, keys.LIMITS_DUE),
        *(keys.FAILURE_GROUPS, keys.BATCHES, keys.OPEN_BATCHES, keys.EMPTY_BATCHES, keys.QUEUES, keys.DELETED),
        *(keys.UNARCHIVED, keys.PARKED_CLAIMS, keys.WORKERS, keys.LOST_WORKERS, keys.LOST_LOCKS, keys.PRESENCE),
        *(keys.SCHEDULES, keys.SCHEDULES_DUE, keys.SCHEDULES_MISSED, keys.SCHEDULES_FOLLOWED, keys.SCHEDULES_FAILING),
        *(keys.QUARANTINE, keys.REASSIGNED, keys.TYPE_SETS, keys.ALERT_LOG, keys.DEPLOYS, keys.DEPLOYS_SEEN),
        *(keys.ended(state) for state in TaskState if state.ended),
    )
    strings = (
        *(keys.DASHBOARD_SECRET, keys.SUBMISSION_CHECK, keys.PAYLOAD_STORE, keys.STORE_NUMBER, keys.WORKERS_STARTED),
        *(keys.RQ_SUSPENDED, keys.DRAINING),
    )
    return {
        **dict.fromkeys(sets, "set"),
        **dict.fromkeys(hashes, "hash"),
        **dict.fromkeys(sorted_sets, "zset"),
        **dict.fromkeys(strings, "string"),
        keys.WAKEUP: "list",
        keys.AUDIT: "stream",
        **{key: kind for each in of_features(keys) for key, kind in each.types().items()},
    }


@cache
def of_queue(keys: Keys) -> Mapping[str, str]:
    """Returns the prefixes of the keys that each queue has, with their types."""
    return {
        keys.rq_queue(""): "list",
        keys.wakeup(""): "list",
        keys.rq_workers(""): "set",
        **{
            key(""): "zset"
            for key in (
                keys.rq_started,
                keys.rq_scheduled,
                keys.rq_deferred,
                keys.rq_finished,
                keys.rq_failed,
                keys.rq_canceled,
                keys.pending,
                keys.scheduled,
                keys.retrying,
                keys.throttled,
                keys.last_turn,
                keys.foreign,
            )
        },
    }


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
