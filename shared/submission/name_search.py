"""Finds the partition of a task with a unique key or an Idempotency-Key while partitions are drained and activated.

A task goes to the first partition that its name prefers. A draining one stores it only if it holds the name; otherwise
the next is tried. Names that prefer an activated partition may still be held by others: those are asked first, in the
step that also keeps them from storing the name within the next seconds. The partitions themselves decide all of this
(`demand_place` in Lua), so a process with an old view of them stores nothing twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from firmq.shared.domain.partition import preferred
from firmq.shared.errors import NotPlaced
from firmq.shared.redis.client import text, translated

if TYPE_CHECKING:
    from firmq.shared.redis.scripts import Scripts

MOST_TRIES = 20
"""Refusals of one submission that send it back or make it look: two for each name, and those of changes meanwhile."""
LONGEST_ROUND = 15.0
"""Seconds from the first note ">" to "<". Those two last for 30 s and 5 s (`name_look.lua`)."""
_THERE, _HERE = ">", "<"


class NameSearch:
    """The partition to try for a name, and which one follows a refusal."""

    def __init__(
        self, name: str, partitions: Mapping[int, Scripts], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.partitions = partitions
        self.clock = clock
        self.order = preferred(name, partitions)
        self._at = 0
        self._found = False
        self._tries = 0

    @property
    def number(self) -> int:
        """Returns the number of the partition to try."""
        return self.order[self._at]

    def after(self, refusal: NotPlaced) -> None:
        """Chooses the next partition after a refusal.

        Raises the refusal when no partition may store the task, and StoreUnavailable.
        """
        wrong = refusal.about["wrong"]
        self._tries += wrong != "draining"  # plain steps along the order end by themselves
        if self._tries > MOST_TRIES:
            raise refusal
        if wrong == "look":
            self._look(refusal.about["kind"], refusal.about["name"])
        elif wrong == "elsewhere" or self._found:
            self._at, self._found = 0, False
        elif self._at + 1 == len(self.order):
            raise refusal
        else:
            self._at += 1

    def _look(self, kind: str, name: str) -> None:
        """Goes to the partition that holds a name, among those that had it before this one; else stays here."""
        while not self._look_once(kind, name):
            self._tries += 1
            if self._tries > MOST_TRIES:
                return  # this partition refuses the task again, which ends the search

    def _look_once(self, kind: str, name: str) -> bool:
        """Asks the partitions. Returns False when that took so long that their notes may end too early."""
        begun = self.clock()
        for at in range(self._at + 1, len(self.order)):
            said = name_look(self.partitions[self.order[at]], kind, name, _THERE)
            if said == "held":
                self._at, self._found = at, True
                return True
            if not said:
                break  # it was never drained: none behind it had the name
        if self.clock() - begun > LONGEST_ROUND:
            return False
        if name_look(self.partitions[self.number], kind, name, _HERE) == "elsewhere":
            self._at = 0
        return True


def name_look(scripts: Scripts, kind: str, name: str, note: str) -> str:
    """Returns "held" when a partition holds a name; else notes where the next holder is stored."""
    with translated():
        return text(scripts.call_answered("name_look", kind, name, note))
