"""Puts what several partitions have together: the same cause or bulk action as one, counts by their sums. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeVar

from firmq.dashboard.overview import Snapshot
from firmq.shared.domain.partition import sibling
from firmq.shared.stores.breakdown import Breakdown, Values
from firmq.shared.stores.bulk_actions import KEPT, BulkAction, Replay
from firmq.shared.stores.failure_groups import FailureGroup

K = TypeVar("K")


def summed(counts: Iterable[Mapping[K, int]]) -> dict[K, int]:
    """Returns the sums of the counts with the same name."""
    found: dict[K, int] = {}
    for name, count in chain.from_iterable(each.items() for each in counts):
        found[name] = found.get(name, 0) + count
    return found


def one_snapshot(parts: Sequence[Snapshot]) -> Snapshot:
    """Returns a snapshot with the tasks, types and queues of all; the rest of it is that of the first one."""
    pending = summed({queue.name: queue.pending for queue in each.queues} for each in parts)
    queues = {queue.name: queue for each in reversed(parts) for queue in each.queues}
    absences: dict[str, str] = {}
    for name, absence in chain.from_iterable(each.types.items() for each in parts):
        absences[name] = absence and absences.get(name, absence)
    return replace(
        parts[0],
        counts=summed(each.counts for each in parts),
        awaiting=sum(each.awaiting for each in parts),
        types=absences,
        queues=[replace(queues[name], pending=count) for name, count in pending.items()],
    )


def one_group(parts: Sequence[FailureGroup]) -> FailureGroup:
    """Returns a cause with the dead letters of all; its message is that of the last one."""
    return replace(
        max(parts, key=lambda each: each.last_at),
        count=sum(each.count for each in parts),
        first_at=min(each.first_at for each in parts),
    )


def merged_groups(parts: Iterable[Sequence[FailureGroup]]) -> list[FailureGroup]:
    """Returns the causes of all, the most frequent first."""
    same: dict[str, list[FailureGroup]] = {}
    for each in chain.from_iterable(parts):
        same.setdefault(each.key, []).append(each)
    return sorted(map(one_group, same.values()), key=lambda each: (-each.count, each.key))


def one_action(parts: Sequence[BulkAction]) -> BulkAction:
    """Returns the bulk actions that were begun as one: it runs while one of them does, and has ended when all have."""
    states = {each.state for each in parts}
    state = next(each for each in ("running", "paused", "aborted", parts[0].state) if each in states)
    ends = [each.ended_at for each in parts if each.ended_at]
    causes = dict.fromkeys(chain.from_iterable(each.replays for each in parts))
    replays = {cause: _one_replay([each.replays[cause] for each in parts if cause in each.replays]) for cause in causes}
    return replace(
        parts[0],
        state=state,
        rate=sum(each.rate for each in parts),
        total=sum(each.total for each in parts),
        done=sum(each.done for each in parts),
        passed=sum(each.passed for each in parts),
        stopped=sum(each.stopped for each in parts),
        unfit=sum(each.unfit for each in parts),
        canary=sum(each.canary for each in parts),
        exact=all(each.exact for each in parts),
        begun_at=min(each.begun_at for each in parts),
        ended_at=max(ends, default=None) if not states & {"running", "paused"} else None,
        outcomes=summed(each.outcomes for each in parts),
        waiting_for=summed(each.waiting_for for each in parts),
        why="; ".join(dict.fromkeys(each.why for each in parts if each.why)),
        replays=dict(sorted(replays.items(), key=lambda each: -each[1].retried)),
    )


def _one_replay(parts: Sequence[Replay]) -> Replay:
    return Replay(sum(each.retried for each in parts), summed(each.outcomes for each in parts))


def merged_actions(parts: Iterable[Sequence[BulkAction]]) -> list[BulkAction]:
    """Returns the open bulk actions and the latest others, newest first; those that were begun as one are one."""
    same: dict[str, list[BulkAction]] = {}
    for each in chain.from_iterable(parts):
        same.setdefault(sibling(each.id, ""), []).append(each)
    kept = sorted(map(one_action, same.values()), key=lambda each: (each.open, each.begun_at), reverse=True)[:KEPT]
    return sorted(kept, key=lambda each: each.begun_at, reverse=True)


def one_breakdown(parts: Sequence[Breakdown]) -> Breakdown:
    """Returns how many tasks of all have which content."""
    names = dict.fromkeys(chain.from_iterable(each.fields for each in parts))
    none = Values()
    return Breakdown(
        tasks=sum(each.tasks for each in parts),
        complete=all(each.complete for each in parts),
        large=sum(each.large for each in parts),
        tags=_one_count([each.tags for each in parts]),
        fields={
            name: _one_count([each.fields.get(name, replace(none, missing=each.tasks)) for each in parts])
            for name in names
        },
    )


def _one_count(parts: Sequence[Values]) -> Values:
    return Values(Counter(summed(each.counts for each in parts)), sum(each.missing for each in parts))
