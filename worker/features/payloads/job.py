"""payloads: removes from the payload store objects that no task needs any longer.

All Redis servers of a system share one payload store, so the job runs for the first one and queries all of them.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from firmq.shared.domain.payload import task_of
from firmq.shared.errors import HistoryUnavailable, PayloadUnavailable, StoreUnavailable
from firmq.shared.failpoints import failpoint
from firmq.shared.redis.client import raw, text, translated
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.locks import HeldLock
from firmq.shared.stores.payloads import PayloadStore
from firmq.worker.housekeeping.registry import RunResult

if TYPE_CHECKING:
    from firmq.shared.stores.tasks import Records

log = logging.getLogger(__name__)

T = TypeVar("T")
BATCH = 500
GRACE = timedelta(hours=1)
"""How long an object is kept in any case: it is written before the task that it belongs to is stored."""
_MOST_KEPT_ENDS = 10_000
MARK = "firmq"
"""The object that names the data in Redis to which a store belongs: a line for each server."""


class NotOurs(PayloadUnavailable):
    """The payload store belongs to other data."""


class ServerAway(PayloadUnavailable):
    """Another server of the system does not answer: which tasks it has is unknown."""


class Payloads(Collector):
    """Walks over all objects, some in each run, and deletes those whose task is neither in Redis nor in the history.

    An object that cannot be deleted is found again by the next pass, and so is one whose submission died.
    """

    name = "payloads"

    def __init__(
        self,
        scripts: Scripts,
        store: PayloadStore,
        records: Records,
        interval: timedelta,
        clock: Callable[[], float] = time.time,
        others: Mapping[str, Scripts] | None = None,
    ) -> None:
        """`others` are the other servers whose tasks use the store, by their labels."""
        self.scripts = scripts
        self.store = store
        self.records = records
        self.interval = interval
        self.clock = clock
        self.others = others or {}
        self.objects: Iterator[tuple[str, float]] | None = None
        """The rest of the current pass."""
        self.removed = 0
        self.failures = 0
        self.error = ""

    def run(self, held: HeldLock) -> RunResult:
        held.check()
        try:
            result = self._step(held)
        except (PayloadUnavailable, HistoryUnavailable) as error:
            return self._failed(error)
        self.error = ""
        return result

    def _step(self, held: HeldLock) -> RunResult:
        if self.objects is None:
            self._demand_ours()
            self.objects = self.store.objects()
        found = list(islice(self.objects, BATCH))
        latest = self.clock() - GRACE.total_seconds()
        removed = self._remove(held, [name for name, written in found if written < latest])
        if len(found) < BATCH:
            self.objects = None
        return RunResult(removed, more=len(found) == BATCH)

    def _remove(self, held: HeldLock, names: Iterable[str]) -> int:
        tasks = {name: task_id for name in names if (task_id := task_of(name))}
        if not tasks:
            return 0
        kept = self._known(set(tasks.values()))
        if gone := set(tasks.values()) - kept:
            kept |= self.records.kept(gone)
        held.check()
        unneeded = [name for name, task_id in tasks.items() if task_id not in kept]
        for name in unneeded:
            self.store.delete(name)
            self.removed += 1
            failpoint("housekeeper.between-batches")
        return len(unneeded)

    def _known(self, ids: set[str]) -> set[str]:
        """Returns the given tasks that any server has."""
        return set().union(*self._everywhere(lambda scripts: tasks_on_record(scripts, ids)))

    def _everywhere(self, call: Callable[[Scripts], T]) -> list[T]:
        """Returns the answers of all servers. Raises ServerAway if another one gives none."""
        answers = [call(self.scripts)]
        for label, scripts in self.others.items():
            try:
                answers.append(call(scripts))
            except StoreUnavailable as error:
                # Not raised as it is: the health of this server does not depend on another one's.
                raise ServerAway(f"{label}: {error}") from error
        return answers

    def _demand_ours(self) -> None:
        """Marks a new store as one of this data. Raises NotOurs for a store of other data.

        Data that was lost, or belongs to another system, knows none of the tasks: all would be deleted. So the mark
        names each server, and all that it names have to be there; a new one is added to it.
        """
        ours = self._everywhere(_mark_of)
        content = self.store.get(MARK)
        theirs = set() if content is None else set(content.split(b"\n"))
        if not theirs.issubset(ours):
            raise NotOurs(
                f"the object {MARK!r} of the payload store names other data in Redis: give each system a store of its "
                "own; if Redis has lost its data, or a server was removed permanently, delete this object, "
                "and the next pass removes all payloads that no task needs"
            )
        if theirs != set(ours):
            self.store.put(MARK, b"\n".join(ours))

    def _failed(self, error: Exception) -> RunResult:
        """Counts and shows an error; it is not one of housekeeping, whose other jobs and health do not depend on it."""
        if not self.error:
            log.error("payloads that no task needs cannot be removed: %s", error)
        self.objects = None
        self.failures += 1
        self.error = str(error)
        return RunResult()

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily("firmq_payloads_removed", "Objects removed from the payload store.", self.removed)
        yield CounterMetricFamily(
            "firmq_payloads_failures", "Runs in which the payload store could not be used.", self.failures
        )


def _mark_of(scripts: Scripts) -> bytes:
    """Returns the id of a server's data, created on first use."""
    key = scripts.keys.PAYLOAD_STORE
    with translated():
        scripts.redis.set(key, secrets.token_hex(16), nx=True)
        return raw(scripts.redis.get(key))


def tasks_on_record(scripts: Scripts, ids: Collection[str]) -> set[str]:
    """Returns the given tasks that Redis has: on record, deleted but restorable, or not yet in the history.

    While very many wait for the history, returns all given tasks.
    """
    keys, wanted = scripts.keys, list(ids)
    with translated(), scripts.redis.pipeline(transaction=False) as pipeline:
        for each in wanted:
            pipeline.exists(keys.rq_job(each), keys.deleted(each))  # one command: a task moves between the two
        known = {each for each, count in zip(wanted, pipeline.execute(), strict=True) if count}
    # Read afterwards, as the record of a removed task becomes one of these.
    with translated():
        if scripts.redis.zcard(keys.UNARCHIVED) > _MOST_KEPT_ENDS:
            return set(wanted)
        return known | {text(each).partition("|")[0] for each in scripts.redis.zrange(keys.UNARCHIVED, 0, -1)}
