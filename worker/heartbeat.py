"""A worker's state in Redis: its identity, its tasks, its task types and limits."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from itertools import islice

from redis.exceptions import RedisError

from firmq.shared.domain.http_task import HTTP_TYPE
from firmq.shared.domain.limit import Limit
from firmq.shared.domain.task import WEBHOOK_TYPE, TaskState
from firmq.shared.errors import FirmqError
from firmq.shared.stores.limits import Limits
from firmq.shared.stores.task_types import TaskType, TaskTypes
from firmq.shared.stores.workers import (
    BUSY_HEARTBEAT,
    HEARTBEAT,
    BlockingType,
    QueueExecutors,
    RunningTask,
    WorkerInfo,
    Workers,
)
from firmq.worker.engine.claimed_task import ClaimedTask
from firmq.worker.engine.link import StoreLink
from firmq.worker.engine.loop import Engine
from firmq.worker.executors.ipc import SERIAL
from firmq.worker.metrics import Holdings

log = logging.getLogger(__name__)

RQ_VERSION = version("rq")
"""The version for RQ's tools. RQ itself is not imported, so that the worker starts sooner."""
MOST_SHOWN = 20
"""Tasks of a concurrent executor that a heartbeat names: those that have run longest."""
MISSED_HEARTBEAT = 0.5
"""Seconds from a failed heartbeat to the next one."""


@dataclass(slots=True)
class Heartbeat:
    """Writes the worker's state to one store every few seconds, and at the engine's request."""

    engine: Engine
    link: StoreLink
    due: threading.Event
    name: str
    workers: Workers
    types: TaskTypes
    limits: Limits
    started_at: datetime
    published: str = ""
    busy: bool = False
    completed: int = 0
    stopped: bool = False
    overruled: set[tuple[str, Limit]] = field(default_factory=set)

    def start(self) -> threading.Thread:
        thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        while not self.stopped:
            self.due.clear()
            self.engine.liveness.announced_at = time.monotonic()
            away = False
            try:
                self.beat()
            except (RedisError, OSError, FirmqError) as error:
                away = True
                log.debug("heartbeat failed: %s", error)
            except Exception:
                # A worker without heartbeats would look dead, and its limits would lapse.
                log.exception("heartbeat failed")
            self.due.wait(self._pause(away))

    def _pause(self, away: bool) -> float:
        """Returns the seconds until the next heartbeat: after an outage, before the grace for silent workers ends."""
        if not self.published:
            return 0.05  # the gateway accepts no task of a type that is not published
        if away:
            return MISSED_HEARTBEAT
        return BUSY_HEARTBEAT if self.busy else HEARTBEAT

    def stop(self) -> None:
        self.stopped = True
        self.due.set()

    def beat(self) -> None:
        info = self.info()
        self.busy = info.state != "idle" or info.completed != self.completed
        self.completed = info.completed
        pool, draining = self.engine.pool, self.engine.draining_until is not None
        types, names = pool.types, pool.type_set
        if names is None or draining:
            self.workers.announce(info)
            return
        if not self.workers.announce(info, names.digest):
            # Redis is new, came back empty, or removed a set that was unused for long.
            self.types.publish_set(names, info.host)
            self.workers.announce(info, names.digest)
        self._declare(types.values(), first=self.published != names.digest)
        self.published = names.digest
        self.engine.on_types_published(self.link)

    def _declare(self, types: Iterable[TaskType], first: bool) -> None:
        """Declares the limits of handlers and settings; a different declaration of another version is logged once.

        That a type has no limit is declared once: ten thousand types would repeat it with each declaration.
        """
        # Housekeeping limits webhook deliveries and HTTP tasks, because it knows all workers.
        handlers = {f"type:{each.name}": each.limit for each in types if each.name not in (WEBHOOK_TYPE, HTTP_TYPE)}
        if not first:
            handlers = {name: limit for name, limit in handlers.items() if limit}
        others = self.limits.declare(handlers, self.engine.settings.declared_limits(), first=first)
        for name, limit in others.items() - self.overruled:
            log.warning("limit %s: overridden by %s, declared by a worker that started later", name, limit)
            self.overruled.add((name, limit))

    def holdings(self) -> Holdings:
        """Counts the tasks and executors of this worker, for the heartbeat and the metrics."""
        pool = list(self.engine.pool.members)
        slots, busy = Counter[str](), Counter[str]()
        for executor in pool:
            slots[executor.kind] += executor.slots
            busy[executor.kind] += min(executor.slots, len(executor.assigned))
        return Holdings(
            held=len(self.engine.lanes.ready()) + sum(len(executor.assigned) for executor in pool),
            memory_bytes=sum(executor.memory_bytes() for executor in pool),
            slots=slots,
            busy=busy,
        )

    def info(self) -> WorkerInfo:
        metrics, pool, slots = self.engine.metrics, list(self.engine.pool.members), self.engine.lanes.serial.slots
        now = time.monotonic()
        running = [
            (executor, held)
            for executor in pool
            for held in _first(executor.assigned, MOST_SHOWN if executor.concurrent else 1)
        ]
        holdings = self.holdings()
        return WorkerInfo(
            name=self.name,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=RQ_VERSION,
            app_version=self.engine.settings.app_version,
            queues=self.engine.settings.queue_selection.entries,
            rq_queues=tuple(self.engine.settings.adopted_queues()),
            executors=len(pool),
            slots=sum(holdings.slots.values()),
            active=sum(holdings.busy.values()),
            serial_slots=holdings.slots[SERIAL],
            serial_active=holdings.busy[SERIAL],
            started_at=self.started_at,
            reason=self.engine.pool.trouble,
            state="draining" if self.engine.draining_until else "busy" if running else "idle",
            held=holdings.held,
            completed=metrics.total(TaskState.COMPLETED),
            failed=metrics.total(TaskState.FAILED),
            retried=metrics.retries,
            crashed=metrics.crashes,
            lost=metrics.leases_lost,
            busy_seconds=round(metrics.busy_seconds, 3),
            memory_bytes=holdings.memory_bytes,
            running=tuple(
                RunningTask(
                    id=held.id.decode(),
                    type=held.name,
                    seconds=round(now - executor.began_at(held), 3),
                    concurrent=executor.concurrent,
                )
                for executor, held in running
            ),
            queue_executors=tuple(
                QueueExecutors(queue=queue, in_use=in_use, limit=slots.limits[queue])
                for queue, in_use in slots.in_use().items()
            ),
            blocking_types=tuple(
                BlockingType(type=name, where=where) for name, where in list(self.engine.pool.blocking.items())
            ),
        )


def _first(assigned: Mapping[int, ClaimedTask], most: int) -> list[ClaimedTask]:
    """Returns the first of a mapping that another thread may change."""
    try:
        return list(islice(assigned.values(), most))
    except RuntimeError:
        return []
