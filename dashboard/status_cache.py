"""A cache of the tasks that open tabs show.

When one of them is read, all are read with it in one step. So two hundred tabs on two hundred tasks send Redis one
command every two seconds, like one tab on one task.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from dashboard.cache import FRESH, OUTAGE
from shared.errors import StoreUnavailable, TaskNotFound
from shared.stores.tasks import Reading, Records

WATCHED = 35.0
"""Seconds without a request after which a task is dropped: just above the longest refresh interval."""
MOST = 256
SMALL = 16_384
"""The largest record, in bytes, that is read along with others."""
KEPT = 1024 * 1024
"""Bytes of all cached records beside the one read last. Parsed, they can take thirty times as much memory."""


@dataclass(slots=True)
class _Watched:
    reading: Reading
    read_at: float
    asked_at: float


class StatusCache:
    """Reads and caches tasks together."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.lock = threading.Lock()
        self.watched: dict[str, _Watched] = {}
        self.outage: tuple[float, StoreUnavailable] | None = None

    def get(self, task_id: str) -> Reading:
        """Returns a task, at most two seconds old. Raises TaskNotFound and StoreUnavailable."""
        with self.lock:
            now = time.monotonic()
            found = self.watched.get(task_id)
            if found is None or now - found.read_at > FRESH:
                self._read(task_id, now)
                found = self.watched.get(task_id)
            if found is None:
                raise TaskNotFound(id=task_id)
            found.asked_at = now
            return found.reading

    def forget(self) -> None:
        """Invalidates all cached tasks after a change."""
        with self.lock:
            for each in self.watched.values():
                each.read_at = 0.0

    def _read(self, task_id: str, now: float) -> None:
        if self.outage and now - self.outage[0] < OUTAGE:
            raise self.outage[1]
        still = [each for each in self.watched.items() if each[0] != task_id and now - each[1].asked_at < WATCHED]
        latest = dict(sorted(still, key=lambda each: each[1].asked_at)[-MOST + 1 :])
        wanted = [task_id, *(each for each, watched in latest.items() if watched.reading.size <= SMALL)]
        try:
            readings = self.records.read_many(wanted)
        except StoreUnavailable as error:
            self.outage = time.monotonic(), error
            raise
        for each in wanted:
            latest.pop(each, None)
        asked = {each: self.watched[each].asked_at if each in self.watched else now for each in readings}
        fresh = {each: _Watched(reading, now, asked[each]) for each, reading in readings.items()}
        self.watched = _light(task_id, latest | fresh)


def _light(wanted: str, watched: dict[str, _Watched]) -> dict[str, _Watched]:
    """Returns the wanted task and, up to KEPT bytes, the others, the last requested first."""
    kept = {wanted: watched.pop(wanted)} if wanted in watched else {}
    room = KEPT
    for each, found in sorted(watched.items(), key=lambda each: -each[1].asked_at):
        if found.reading.size <= room:
            kept[each] = found
            room -= found.reading.size
    return kept
