"""The stamp sheet: a shared memory file in which every task notes when it was submitted and when it began.

Counting through Redis would add load to the very thing that is measured, and would add it unevenly. A store into
shared memory costs a third of a microsecond, is the same for every system, and tells lost tasks and repeated ones.
Each task has a slot of its own, so no process ever waits for another.
"""

from __future__ import annotations

import mmap
from pathlib import Path

COLUMNS = 3
DOUBLE = 8


class Sheet:
    """Three columns of doubles (submitted, started, repeats), one row a task; zero means not yet."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            memory = mmap.mmap(file.fileno(), 0)
        cells = memoryview(memory).cast("d")
        self.slots = len(cells) // COLUMNS
        self.submitted = cells[: self.slots]
        self.started = cells[self.slots : 2 * self.slots]
        self.repeats = cells[2 * self.slots :]
        self._run = 0

    @classmethod
    def create(cls, path: Path, slots: int) -> Sheet:
        path.write_bytes(bytes(slots * COLUMNS * DOUBLE))
        return cls(path)

    def stamp(self, number: int, now: float) -> None:
        """Note the first start; a second one of the same task is only counted."""
        if self.started[number]:
            self.repeats[number] += 1
        else:
            self.started[number] = now

    def unbroken(self) -> int:
        """How many tasks from the first on have begun without a gap; cheap enough to ask every few milliseconds."""
        while self._run < self.slots and self.started[self._run]:
            self._run += 1
        return self._run

    def begun(self) -> int:
        """How many tasks have begun, in whatever order."""
        return sum(1 for at in self.started if at)

    def repeated(self) -> int:
        """How many starts were second starts of a task that had begun before."""
        return int(sum(self.repeats))

    def at_once(self, seconds: float) -> int:
        """The most tasks that began within so many seconds: if each takes as long, so many ran at a time."""
        starts = sorted(at for at in self.started if at)
        first = most = 0
        for last, at in enumerate(starts):
            while at - starts[first] >= seconds:
                first += 1
            most = max(most, last - first + 1)
        return most

    def waits(self, numbers: range) -> list[float]:
        """Seconds from submission to start."""
        return [self.started[n] - self.submitted[n] for n in numbers if self.started[n]]
