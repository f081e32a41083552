"""ttl: expires tasks too old to start, removes records past their retention, and batches without tasks.

Also fails tasks that no live version of their type takes, and removes types that no worker has had for long, and queues
that had no task for long.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import partial

from firmq.shared.domain.clock import to_us
from firmq.shared.domain.task import TaskState
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores import maintenance
from firmq.shared.stores.locks import HeldLock
from firmq.worker.housekeeping.registry import RunResult, removed_until_done, until_done

BATCH = 200
REFUSED = 50
ROUNDS = 50
SILENCE = timedelta(hours=1)
"""Silence after which a batch is closed, so that its follow-up does not wait for a dead sender."""
BATCH_AGE = timedelta(days=1)
"""Minimum time for which a batch stays on record, so that repeating it adds nothing."""


class Ttl:
    """Enforces expiry and retention."""

    name = "ttl"

    def __init__(
        self,
        scripts: Scripts,
        retention: Mapping[TaskState, timedelta],
        interval: timedelta,
        type_retention: timedelta = timedelta(days=7),
        configured_queues: Iterable[str] = (),
        queue_retention: timedelta = timedelta(hours=1),
        deleted_retention: timedelta = timedelta(days=1),
    ) -> None:
        self.scripts = scripts
        self.retention = retention
        self.type_retention = type_retention
        self.configured_queues = tuple(configured_queues)
        self.queue_retention = queue_retention
        self.deleted_retention = deleted_retention
        self.interval = interval

    def run(self, held: HeldLock) -> RunResult:
        done = until_done(held, lambda: maintenance.expire(self.scripts, BATCH, held.fencing_token), BATCH, ROUNDS)
        done += until_done(
            held, lambda: maintenance.refused(self.scripts, REFUSED, held.fencing_token), REFUSED, ROUNDS
        )
        keep_types = to_us(self.type_retention)
        done += until_done(
            held, lambda: maintenance.types_prune(self.scripts, keep_types, BATCH, held.fencing_token), BATCH, ROUNDS
        )
        keep_queues = to_us(self.queue_retention)
        done += RunResult(
            maintenance.queues_prune(self.scripts, self.configured_queues, keep_queues, held.fencing_token)
        )
        step = partial(
            maintenance.batch_prune, self.scripts, to_us(SILENCE), to_us(BATCH_AGE), BATCH, held.fencing_token
        )
        done += until_done(held, step, BATCH, ROUNDS)
        done += until_done(held, self._forget_deleted, BATCH, ROUNDS)
        return sum((self._prune(state, age, held) for state, age in self.retention.items()), done)

    def _forget_deleted(self) -> int:
        """Removes deleted tasks from their index after their records have expired; returns how many."""
        latest = self.scripts.now_us() - to_us(self.deleted_retention)
        index = self.scripts.keys.DELETED
        if ids := self.scripts.redis.zrangebyscore(index, "-inf", latest, 0, BATCH):
            self.scripts.redis.zrem(index, *ids)
        return len(ids)

    def _prune(self, state: TaskState, age: timedelta, held: HeldLock) -> RunResult:
        return removed_until_done(
            held, lambda: maintenance.prune(self.scripts, state, to_us(age), BATCH, held.fencing_token), BATCH, ROUNDS
        )
