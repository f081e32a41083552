"""Tasks that others in another partition depend on.

Before a task is stored, the states of its parents elsewhere are copied to its partition, and that partition is
registered among the children of each parent: the step that ends the parent writes a notice, which a housekeeper
delivers. A copy has the time at which it was read, by the clock of the parent's partition, so what arrives twice or
late changes nothing. When a notice or a registration is lost, in a failover for instance, a periodic look-up replaces
it (`worker/housekeeping/jobs/dependencies.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from firmq.shared.domain.clock import to_us
from firmq.shared.redis.client import text, translated

if TYPE_CHECKING:
    from firmq.shared.redis.scripts import Scripts

CHUNK = 100
"""Parents in one step; the result of each may be large."""
KEPT = timedelta(hours=1)
"""How long a parent without children is known: a submission that made it known may still store them."""


@dataclass(frozen=True, slots=True)
class Seen:
    """States of tasks of a partition, as of a moment by its clock, of as many as fit into a step.

    Each is the id, the state ("gone" without a record), and the result or error.
    """

    partition: int
    as_of: bytes
    states: Sequence[tuple[str, bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Unheard:
    """A parent elsewhere that is to be looked up; `partition` is None if unknown, `since` when it was heard of last."""

    task_id: str
    partition: int | None
    since: int


Notices: TypeAlias = Mapping[str, bytes]
"""The ids of ended tasks, with the scores of their notices."""


class RemoteParents:
    """What one partition knows of parents elsewhere, and what it has to tell others of its own tasks."""

    def __init__(self, scripts: Scripts, number: int) -> None:
        """`number` is that of the partition."""
        self.scripts = scripts
        self.number = number

    def watch(self, ids: Sequence[str], partition: int) -> Seen:
        """Returns the states of tasks of this partition; the other one gets a notice when they end from here on."""
        with translated():
            as_of, *found = self.scripts.call("parents_watch", partition, *ids)
        return Seen(self.number, as_of, list(zip(ids, found[::2], found[1::2], strict=False)))

    def note(self, seen: Seen, *, for_new_task: bool = False) -> None:
        """Stores the states of parents elsewhere, and notifies the tasks that depend on those that have ended.

        A parent that no task depends on is stored only `for_new_task`. Returns when a kill -9 of Redis undoes nothing.
        """
        arguments = [part for each in seen.states for part in each]
        with translated():
            self.scripts.call_answered("parents_note", seen.as_of, seen.partition, int(for_new_task), *arguments)

    def note_gone(self, ids: Iterable[str]) -> None:
        """Notes that no partition has a record of these parents."""
        self.note(Seen(self.number, b"%d" % self.scripts.now_us(), [(each, b"gone", b"") for each in ids]))

    def has(self, task_id: str) -> bool:
        """Returns whether this partition has the record of a task."""
        with translated():
            return bool(self.scripts.redis.exists(self.scripts.keys.rq_job(task_id)))

    def due(self, interval: timedelta, most: int) -> list[Unheard]:
        """Returns parents elsewhere that were not looked up for an interval, and forgets those without children."""
        with translated():
            rows = self.scripts.call("parents_due", to_us(interval), to_us(KEPT), most)
        return [Unheard(text(each), int(number) if number else None, int(since)) for each, number, since in rows]

    def notices(self, partition: int, most: int) -> Notices:
        """Returns what has to be told to another partition, the oldest first."""
        key = self.scripts.keys.notices(str(partition))
        with self.scripts.quarantining({key: "zset"}):
            rows: Any = self.scripts.redis.zrange(key, 0, most - 1, withscores=True)
        return {text(task_id): f"{score:.0f}".encode() for task_id, score in rows}

    def settle(self, partition: int, notices: Notices) -> None:
        """Removes notices that were delivered, unless their tasks have ended once more since."""
        with translated():
            self.scripts.call("notices_settle", partition, *(part for pair in notices.items() for part in pair))


def look_up(ids: Sequence[str], of: RemoteParents, to: RemoteParents, *, for_new_task: bool = False) -> None:
    """Looks up tasks in their partition for another one. Raises StoreUnavailable."""
    at = 0
    while at < len(ids):
        seen = of.watch(ids[at : at + CHUNK], to.number)
        to.note(seen, for_new_task=for_new_task)
        at += len(seen.states)


def by_partition(places: Mapping[str, int]) -> dict[int, list[str]]:
    """Returns ids by the numbers of their partitions."""
    found: dict[int, list[str]] = {}
    for task_id, number in places.items():
        found.setdefault(number, []).append(task_id)
    return found
