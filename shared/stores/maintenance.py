"""The steps of housekeeping: each is one script, under the fencing token of its job's lock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from firmq.shared.domain.lock import NO_LOCK, FencingToken
from firmq.shared.redis.client import text, text_or_number

if TYPE_CHECKING:
    from firmq.shared.redis.scripts import Scripts


class Reaped(NamedTuple):
    """An attempt that its worker did not end. `state` is the new state of the task."""

    id: str
    type: str
    queue: str
    worker: str
    state: str
    crashes: int
    attempt: int
    ran_us: int
    meta: str


class Pruned(NamedTuple):
    """Ended tasks that were removed, of those that were examined: some are still needed by others."""

    removed: int
    looked: int


def due(scripts: Scripts, queues: Sequence[str]) -> list[str]:
    """Returns the queues with due tasks, and those whose keys cannot be read."""
    now = scripts.now_us()
    with scripts.redis.pipeline(transaction=False) as pipeline:
        for queue in queues:
            for key in (scripts.keys.retrying(queue), scripts.keys.scheduled(queue)):
                pipeline.zrange(key, 0, 0, withscores=True)
        firsts = pipeline.execute(raise_on_error=False)
    waiting = [isinstance(first, Exception) or bool(first and first[0][1] <= now) for first in firsts]
    return [queue for number, queue in enumerate(queues) if any(waiting[2 * number : 2 * number + 2])]


def promote(
    scripts: Scripts, queue: str, limit: int, fencing_token: FencingToken = NO_LOCK
) -> tuple[int, int, int | None]:
    """Moves due tasks; returns how many, the lateness of the latest (µs), when the next is due (µs)."""
    moved, lateness, due = scripts.call("promote", queue, limit, fencing_token.lock, fencing_token.token)
    return moved, int(lateness), int(float(due)) if due else None


def reap(
    scripts: Scripts,
    limit: int,
    max_crashes: int,
    fencing_token: FencingToken = NO_LOCK,
    lease_us: int = 0,
    patience_us: int = 0,
) -> list[Reaped]:
    """Ends attempts whose lease has expired.

    A call later than `patience_us` after the previous one extends all leases by `lease_us`: Redis was unreachable.
    """
    reply = scripts.call("reap", limit, max_crashes, fencing_token.lock, fencing_token.token, lease_us, patience_us)
    return [Reaped(*map(text_or_number, row)) for row in reply]


def expire(scripts: Scripts, limit: int, fencing_token: FencingToken = NO_LOCK) -> int:
    """Expires waiting tasks that are too old to start; returns how many."""
    return int(scripts.call("expire", limit, fencing_token.lock, fencing_token.token))


def prune(scripts: Scripts, state: str, age_us: int, limit: int, fencing_token: FencingToken = NO_LOCK) -> Pruned:
    """Removes tasks that ended in `state` longer ago than `age_us`."""
    return Pruned(*scripts.call("prune", state, age_us, "", limit, fencing_token.lock, fencing_token.token))


def trim(scripts: Scripts, state: str, keep: int, limit: int, fencing_token: FencingToken = NO_LOCK) -> Pruned:
    """Removes the oldest tasks that ended in `state` until `keep` are left."""
    return Pruned(*scripts.call("prune", state, "", keep, limit, fencing_token.lock, fencing_token.token))


def recover(scripts: Scripts, queue: str, grace_us: int, limit: int, fencing_token: FencingToken = NO_LOCK) -> int:
    """Restores lost queue entries of pending tasks; returns how many, or -1: the whole list has to be checked."""
    return int(scripts.call("recover", queue, grace_us, limit, fencing_token.lock, fencing_token.token))


def restore_entries(
    scripts: Scripts, queue: str, grace_us: int, ids: Sequence[str], fencing_token: FencingToken
) -> int:
    """Restores the queue entries of those that wait longer than the grace, in front; returns how many."""
    return int(scripts.call("restore_entries", queue, grace_us, fencing_token.lock, fencing_token.token, *ids))


def check_consistency(
    scripts: Scripts, queues: Iterable[str], lease_us: int, limit: int, fencing_token: FencingToken
) -> tuple[int, dict[str, int]]:
    """Checks the next tasks in the index of all tasks; returns how many, and the repairs by kind."""
    looked, *wrong = scripts.call(
        "check_consistency", fencing_token.lock, fencing_token.token, lease_us, limit, *queues
    )
    pairs = zip(wrong[::2], wrong[1::2], strict=True)
    return int(looked), {text(what): int(times) for what, times in pairs}


def run_deferred(scripts: Scripts, limit: int, fencing_token: FencingToken = NO_LOCK) -> int:
    """Runs deferred work of ended tasks and stopped batches; returns how many tasks it processed."""
    return int(scripts.call("run_deferred", limit, fencing_token.lock, fencing_token.token))


def batch_prune(
    scripts: Scripts, silence_us: int, age_us: int, limit: int, fencing_token: FencingToken = NO_LOCK
) -> int:
    """Closes batches whose sender is silent, removes those without tasks; returns how many."""
    return int(scripts.call("batch_prune", silence_us, age_us, limit, fencing_token.lock, fencing_token.token))


def refused(scripts: Scripts, limit: int, fencing_token: FencingToken = NO_LOCK) -> int:
    """Fails pending tasks whose data every live version of their type refused; returns how many."""
    return int(scripts.call("refused", fencing_token.lock, fencing_token.token, limit))


def queues_prune(
    scripts: Scripts, configured: Iterable[str], keep_us: int, fencing_token: FencingToken = NO_LOCK
) -> int:
    """Removes queues that are neither configured nor in use for `keep_us`; returns how many."""
    return int(scripts.call("queues_prune", fencing_token.lock, fencing_token.token, keep_us, *configured))


def types_prune(scripts: Scripts, keep_us: int, limit: int, fencing_token: FencingToken = NO_LOCK) -> int:
    """Removes types that no worker has had for `keep_us`; returns how many."""
    return int(scripts.call("types_prune", fencing_token.lock, fencing_token.token, keep_us, limit))
