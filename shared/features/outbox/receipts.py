"""Stores the tasks of outboxes, each exactly once, with a receipt that outlives the record of the task."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from firmq.shared.domain.clock import to_us
from firmq.shared.redis.client import translated
from firmq.shared.stores.queues import CHUNK, Submitted, chunks, read_submitted, submit_arguments

if TYPE_CHECKING:
    from firmq.shared.domain.task import NewTask
    from firmq.shared.redis.scripts import Scripts

KEEP = timedelta(days=366)
"""How long the receipt of a row is kept that may be sent again: how long a relay may be off."""


class Receipts:
    """Stores tasks by ids that their senders chose, and keeps a receipt of each until its row is settled."""

    def __init__(self, scripts: Scripts, keep_settled: timedelta, bounds: str = "0") -> None:
        """`keep_settled` is for a relay that was suspended while it sent: its rows were settled by another one.

        `bounds` as in `Queues`.
        """
        self.scripts = scripts
        self.keep_settled = keep_settled
        self.bounds = bounds

    def submit(self, tasks: Sequence[NewTask], settled: Sequence[str] = ()) -> list[Submitted]:
        """Stores tasks; returns the outcomes in their order. `known` are those that were stored before.

        `settled` are ids of tasks whose rows cannot be sent again. Raises StoreUnavailable when Redis does not answer:
        then some may have been stored, and sending all of them again is safe. Nothing at all is a relay's heartbeat.
        """
        answer: list[Submitted] = []
        with translated():
            if not tasks and not settled:
                self._store((), ())
            for start in range(0, len(settled), CHUNK):
                self._store((), settled[start : start + CHUNK])
            for chunk in chunks(tasks):
                answer += self._store(chunk, ())
        return answer

    def _store(self, tasks: Sequence[NewTask], settled: Sequence[str]) -> list[Submitted]:
        kept = (to_us(KEEP) // 1000, to_us(self.keep_settled) // 1000)
        fields = (field for task in tasks for field in submit_arguments(task))
        said = self.scripts.call_accepted("submit_outbox", self.bounds, *kept, len(settled), *settled, *fields)
        return [read_submitted(task.id, each) for task, each in zip(tasks, said, strict=True)]
