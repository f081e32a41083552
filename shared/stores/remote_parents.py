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

from taskqueue.shared.domain.clock import to_us
from taskqueue.shared.redis.client import text, translated

if TYPE_CHECKING:
    from taskqueue.shared.redis.scripts import Scripts

CHUNK = 100
"""Parents in one step; the result of each may be large."""
KEPT = timedelta(hours=1)
"""How long a parent without children is known: a submission that made it known may still store them."""


@dataclass(frozen=True, slots=True)
class Seen:
    """States of tasks, as of a moment of their partition: id, state ("gone" without a record), and result or error."""

    as_of: bytes
    states: Sequence[tuple[str, bytes, bytes]]


Notices: TypeAlias = Mapping[str, bytes]
"""The ids of ended tasks, with the scores of their notices."""


class RemoteParents:
    """What one partition knows of parents elsewhere, and what it has to tell others of its own tasks."""

    def __init__(self, scripts: Scripts) -> None:
        self.scripts = scripts

    def watch(self, ids: Sequence[str], partition: int) -> Seen:
        """Returns the states of tasks of this partition; the other one gets a notice when they end from here on."""
        with translated():
            as_of, *found = self.scripts.call("parents_watch", partition, *ids)
        return Seen(as_of, list(zip(ids, found[::2], found[1::2], strict=True)))

    def note(self, seen: Seen) -> None:
        """Stores the states of parents elsewhere, and notifies the tasks that depend on those that have ended."""
        with translated():
            self.scripts.call("parents_note", seen.as_of, *(part for each in seen.states for part in each))

    def due(self, interval: timedelta, most: int) -> list[str]:
        """Returns parents elsewhere that were not looked up for an interval, and forgets those without children."""
        with translated():
            return [text(each) for each in self.scripts.call("parents_due", to_us(interval), to_us(KEPT), most)]

    def notices(self, partition: int, most: int) -> Notices:
        """Returns what has to be told to another partition, the oldest first."""
        with translated():
            key = self.scripts.keys.notices(str(partition))
            rows: Any = self.scripts.redis.zrange(key, 0, most - 1, withscores=True)
        return {text(task_id): f"{score:.0f}".encode() for task_id, score in rows}

    def settle(self, partition: int, notices: Notices) -> None:
        """Removes notices that were delivered, unless their tasks have ended once more since."""
        with translated():
            self.scripts.call("notices_settle", partition, *(part for pair in notices.items() for part in pair))


def look_up(parents: Iterable[str], of: RemoteParents, to: RemoteParents, number: int) -> None:
    """Looks up tasks in their partition for the one with this number. Raises StoreUnavailable."""
    ids = list(parents)
    for at in range(0, len(ids), CHUNK):
        to.note(of.watch(ids[at : at + CHUNK], number))


def by_partition(places: Mapping[str, int]) -> dict[int, list[str]]:
    """Returns ids by the numbers of their partitions."""
    found: dict[int, list[str]] = {}
    for task_id, number in places.items():
        found.setdefault(number, []).append(task_id)
    return found
