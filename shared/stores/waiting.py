"""Why pending tasks wait, for the whole system: how many for which reason, and its remedy.

The cost is bounded: some counts of each queue, and at most `EXAMINED` wait queues of throttled tasks. Tasks in other
wait queues are counted together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from firmq.shared.domain.clock import instant
from firmq.shared.redis.client import text, translated

if TYPE_CHECKING:
    from firmq.shared.redis.scripts import Scripts
    from firmq.shared.stores.queues import QueueInfo
    from firmq.shared.stores.workers import WorkerInfo

EXAMINED = 1500
"""Wait queues that are examined: about 3 ms of Redis."""


SOON = timedelta(seconds=5)
"""How long a task may wait for an executor that is free."""


class Reason(StrEnum):
    """Why tasks wait, the reasons that only people lift first."""

    QUEUE_PAUSED = "queue_paused"
    TYPE_PAUSED = "type_paused"
    NO_WORKER = "no_worker"
    NO_HANDLER = "no_handler"
    DATA_REFUSED = "data_refused"
    LIMIT = "limit"
    QUEUE_EXECUTORS = "queue_executors"
    NO_FREE_EXECUTOR = "no_free_executor"
    TENANT_TURN = "tenant_turn"
    THROTTLED = "throttled"
    STARTING = "starting"

    @property
    def blocks(self) -> bool:
        """Returns whether the tasks wait until a person acts."""
        return self in (
            Reason.QUEUE_PAUSED,
            Reason.TYPE_PAUSED,
            Reason.NO_WORKER,
            Reason.NO_HANDLER,
            Reason.DATA_REFUSED,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """How many tasks wait for a reason; `name` is the queue's, limit's or task type's, `detail` an example."""

    reason: Reason
    name: str
    count: int
    detail: str = ""

    @property
    def text(self) -> str:
        """Returns the reason in words."""
        return _TEXTS[self.reason].format(name=self.name, detail=self.detail)

    @property
    def advice(self) -> str:
        """Returns how to lift it."""
        return _ADVICE[self.reason].format(name=self.name)

    @property
    def page(self) -> str:
        """Returns the path of the page of the dashboard where it is lifted."""
        return _PAGES.get(self.reason, "/workers").format(name=self.name)


_TEXTS = {
    Reason.QUEUE_PAUSED: "queue {name} is paused",
    Reason.TYPE_PAUSED: "type {name} is paused",
    Reason.NO_WORKER: "no live worker takes from {name}",
    Reason.NO_HANDLER: "no live worker can run {name}",
    Reason.DATA_REFUSED: "no live version of {name} accepts their data ({detail})",
    Reason.LIMIT: "limit {name}",
    Reason.QUEUE_EXECUTORS: "all executors that QUEUE_EXECUTORS allows for {name} are busy",
    Reason.NO_FREE_EXECUTOR: "no free executor",
    Reason.TENANT_TURN: "turn of their tenants or scores in {name}",
    Reason.THROTTLED: "other limits and turns in {name}",
    Reason.STARTING: "about to start",
}
_ADVICE = {
    Reason.QUEUE_PAUSED: "resume it: firmq queues resume {name}",
    Reason.TYPE_PAUSED: "resume it: firmq types resume {name}",
    Reason.NO_WORKER: "start a worker without WORKER_QUEUES, or with {name} in it: firmq worker",
    Reason.NO_HANDLER: "start a worker whose TASK_MODULES include the module of {name}",
    Reason.DATA_REFUSED: "start a worker with the version of {name} that they are for; in 60 s they are dead letters",
    Reason.LIMIT: "raise or remove the limit, or wait for a running task to end",
    Reason.QUEUE_EXECUTORS: "raise QUEUE_EXECUTORS, or start more workers",
    Reason.NO_FREE_EXECUTOR: "start more workers, or raise WORKER_EXECUTORS if processors are idle",
    Reason.TENANT_TURN: "start more workers: tenants take turns, and lower scores go first",
    Reason.THROTTLED: "check the limits",
    Reason.STARTING: "nothing to do, they wait for less than 5 s",
}
_PAGES = {
    Reason.QUEUE_PAUSED: "/queues",
    Reason.TYPE_PAUSED: "/types/{name}",
    Reason.NO_HANDLER: "/types/{name}",
    Reason.DATA_REFUSED: "/types/{name}",
    Reason.LIMIT: "/limits",
    Reason.TENANT_TURN: "/limits",
    Reason.THROTTLED: "/limits",
}
_GROUPS = {
    "limit": Reason.LIMIT,
    "pause": Reason.TYPE_PAUSED,
    "turn": Reason.TENANT_TURN,
    "busy": Reason.NO_FREE_EXECUTOR,
    "handler": Reason.NO_HANDLER,
    "data": Reason.DATA_REFUSED,
}


def explain_waiting(scripts: Scripts, queues: Sequence[QueueInfo], workers: Sequence[WorkerInfo]) -> list[Waiting]:
    """Returns why pending tasks wait, the most frequent reason first. The counts add up to the queues' counts."""
    with translated():
        now = instant(scripts.now_us())
    throttled = [each.name for each in queues if each.throttled and _reason(each, workers, now) not in _WHOLE]
    rows = []
    if throttled:
        with translated():
            rows = scripts.call("waiting", EXAMINED, *throttled)
    found: Counter[tuple[Reason, str]] = Counter()
    for queue in queues:
        groups = [row[1:] for row in rows if text(row[0]) == queue.name]
        for reason, name, count in _of_queue(queue, groups, workers, now):
            found[reason, name] += count
    details = {text(name): text(why) for _, _, name, _, why in rows if why}
    counted = [
        Waiting(reason=reason, name=name, count=count, detail=details.get(name, ""))
        for (reason, name), count in found.items()
        if count > 0
    ]
    return sorted(counted, key=lambda each: -each.count)


_WHOLE = (Reason.QUEUE_PAUSED, Reason.NO_WORKER)
"""Reasons that hold for all tasks of a queue, throttled or not."""


def _of_queue(
    queue: QueueInfo, groups: Sequence[Sequence[bytes]], workers: Sequence[WorkerInfo], now: datetime
) -> Iterator[tuple[Reason, str, int]]:
    reason = _reason(queue, workers, now)
    if reason in _WHOLE:
        yield reason, queue.name, queue.pending
        return
    yield reason, queue.name if reason is Reason.QUEUE_EXECUTORS else "", queue.pending - queue.throttled
    left = queue.throttled
    for what, name, count, _ in groups:
        group = _GROUPS[text(what)]
        named = {Reason.TENANT_TURN: queue.name, Reason.NO_FREE_EXECUTOR: ""}.get(group, text(name))
        # Read later than the counts of the queues: tasks may have come since.
        yield group, named, min(left, int(count))
        left -= min(left, int(count))
    yield Reason.THROTTLED, queue.name, left


def _reason(queue: QueueInfo, workers: Sequence[WorkerInfo], now: datetime) -> Reason:
    """Returns why the tasks of a queue wait that nothing throttles."""
    if queue.paused is not None:
        return Reason.QUEUE_PAUSED
    takers = [each for each in workers if each.takes(queue.name)]
    if not takers:
        return Reason.NO_WORKER
    if all(each.limit_reached(queue.name) for each in takers):
        return Reason.QUEUE_EXECUTORS
    since = queue.oldest_ready_at
    return Reason.STARTING if since is None or now - since < SOON else Reason.NO_FREE_EXECUTOR
