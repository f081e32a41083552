"""Turns the jobs that RQ programs enqueue into the queues of RQ_QUEUES into tasks."""

from __future__ import annotations

import base64
import json
import logging
import os
import random
import signal
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence

from redis.exceptions import RedisError

from firmq.shared.domain import task_data
from firmq.shared.domain.task import RQ_JOB_TYPE, new_task_id
from firmq.shared.errors import FirmqError
from firmq.shared.redis.client import text
from firmq.shared.redis.scripts import Scripts
from firmq.worker.features.rq.arrivals import Arrivals
from firmq.worker.features.rq.terms import Terms

log = logging.getLogger(__name__)

AT_FIRST, ADOPTED_AT_ONCE = 20, 200
"""Jobs for which an adoption brings ids of tasks: few, and many when the last ones were all needed."""
AT_ONCE = 50
MOST_ADOPTED = 1000
"""Tasks of RQ jobs that have not ended: what waits beyond these stays in RQ's own queues."""
MOST_OF_SEVERAL = 200
"""The same for several queues, of which only so many are adopted ahead as start soon: a job of the first one waits
behind jobs adopted from the others."""
IDLE = 0.1
"""Seconds until queues where nothing arrived are read again, as jobs become due."""
SETTLE = 0.2
"""Seconds after which tasks that ended otherwise than by RQ's code are looked for."""
LIMITS_AT_ONCE = 10
"""Rate limits of RQ programs whose slots are looked at when ended tasks are looked for."""
AFTER_AN_ERROR = 1.0
_CALL = task_data.encode(RQ_JOB_TYPE, "@")
_USUAL = Terms()
_REFUSED = "JobRefused"
"""The error of a job that may not be run, so that its callbacks may not be called either."""


class Adopter:
    """Adopts jobs in a thread of the worker until it drains or is stopped.

    `queues` are RQ's, each with the queue of its tasks; `executors` is how many jobs this worker runs at a time.
    """

    def __init__(
        self,
        scripts: Scripts,
        queues: Mapping[str, str],
        draining: Callable[[], bool],
        terms: Terms = _USUAL,
        executors: int = MOST_ADOPTED,
    ) -> None:
        self.scripts = scripts
        self.queues = queues
        self.draining = draining
        self.terms = terms
        self._taken = 0
        self._open: list[str] = []
        """Its tasks that have not ended, where that decides when this worker ends."""
        self._waiting: list[str] = []
        """Its tasks that have not started, of several queues."""
        self._executors = self._ahead = executors
        self._is_full = False
        """Whether jobs may have been left in RQ's queues at the last look, as enough are adopted."""
        self._busy_at = time.monotonic()
        self._turn = 0
        self._at_once = AT_FIRST
        self._stopping = threading.Event()
        self._arrived = threading.Event()
        names = map(scripts.keys.rq_queue, queues)
        self._arrivals = Arrivals(scripts.redis, names, self._arrived)
        self._thread = threading.Thread(target=self._run, name="rq-adopter", daemon=True)

    def start(self) -> None:
        self._arrivals.start()
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, and gives jobs that did not start back to RQ's queues. Raises nothing."""
        self._stopping.set()
        self._arrivals.stop()
        self._arrived.set()
        self._thread.join(timeout=5)
        try:
            self.give_back()
        except (RedisError, OSError, FirmqError) as error:
            log.warning("jobs of RQ programs were not returned to their queues: %s", error)
        if self.terms.report_to is not None:
            os.write(self.terms.report_to, b"%d" % self._taken)

    def give_back(self) -> None:
        """Removes the tasks that did not start; their jobs are in front of RQ's queues again."""
        while self.scripts.call("rq_return", AT_ONCE) == AT_ONCE:
            pass

    def adopt(self) -> int:
        """Adopts from each queue in turn, the first until it is empty; returns how many jobs became tasks."""
        # RQ's other strategies choose a queue for each job.
        room = self._at_once = self._at_once if self.terms.strategy == "default" else 1
        most = MOST_OF_SEVERAL if (several := len(self.queues) > 1) else MOST_ADOPTED
        room = min(room, self._room()) if several else room
        self._is_full = room <= 0
        room = room if self.terms.max_jobs is None else min(room, self.terms.max_jobs - self._taken)
        adopted, ids = 0, [new_task_id() for _ in range(room)]
        for name in self._in_order() if ids else ():
            about = (name, self.queues[name], RQ_JOB_TYPE, _CALL, most, int(self.terms.scheduler))
            adopted = int(self.scripts.call("rq_adopt", *about, *ids))
            self._is_full |= adopted < 0
            if adopted > 0:
                self._turn = [*self.queues].index(name) + 1
                break
        adopted = max(adopted, 0)
        self._at_once = ADOPTED_AT_ONCE if adopted >= AT_FIRST else AT_FIRST
        self._taken += adopted
        self._waiting += ids[:adopted] if several else ()
        if self.terms.ends:
            self._open += ids[:adopted]
        return adopted

    def _room(self) -> int:
        """Returns how many jobs of several queues may be adopted: about as many as start before the next look."""
        before, redis, keys = self._waiting, self.scripts.redis, self.scripts.keys
        queues = {*self.queues.values()} if before else ()
        found = [redis.zmscore(keys.pending(each), before) for each in queues]
        self._waiting = [task for task, *at in zip(before, *found, strict=True) if any(each is not None for each in at)]
        # Twice as many as started since the last look, so that executors of short jobs do not wait.
        self._ahead = max(self._executors, 2 * (len(before) - len(self._waiting)), self._ahead * 3 // 4)
        return self._ahead - len(self._waiting)

    def _in_order(self) -> Sequence[str]:
        names = [*self.queues]
        if self.terms.strategy == "random":
            random.shuffle(names)
        elif self.terms.strategy == "round_robin":
            names = [*names[self._turn :], *names[: self._turn]]
        return names

    def _is_done(self, adopted: int) -> bool:
        """Returns whether the terms of this worker are fulfilled, and its jobs have ended."""
        if self._open:
            waiting = self.scripts.redis.hmget(self.scripts.keys.RQ_ADOPTED, self._open)
            self._open = [each for each, job in zip(self._open, waiting, strict=True) if job is not None]
        terms = self.terms
        has_all = terms.max_jobs is not None and self._taken >= terms.max_jobs
        if adopted or self._open or (self._is_full and not has_all):
            self._busy_at = time.monotonic()
            return False
        idle = time.monotonic() - self._busy_at
        return has_all or terms.burst or (terms.max_idle_time is not None and idle >= terms.max_idle_time)

    def settle(self) -> int:
        """Writes to the jobs that their tasks ended in another way than by RQ's own code; returns how many did."""
        ended = self.scripts.call("rq_ended", AT_ONCE)
        for task_id, state, error in ended:
            reason = _reason(text(state), error)
            said = base64.b64encode(zlib.compress(reason.encode("utf-8", "backslashreplace")))
            follow_up = "" if _REFUSED in reason.partition(":")[0] else new_task_id()
            self.scripts.call("rq_fail", task_id, state, said, follow_up, RQ_JOB_TYPE, _CALL)
        return len(ended)

    def _run(self) -> None:
        settled_at = 0.0
        while not self._stopping.is_set():
            try:
                if time.monotonic() - settled_at > SETTLE:
                    self.settle()
                    self.scripts.call("rq_slots", LIMITS_AT_ONCE)
                    settled_at = time.monotonic()
                most = self._at_once
                adopted = 0 if self.draining() else self.adopt()
                self._arrivals.looked()
                if self.terms.ends and self._is_done(adopted):
                    os.kill(os.getpid(), signal.SIGTERM)  # as any stop: the main thread drains
                    return
                if adopted < most:
                    self._arrived.wait(IDLE)
                    self._arrived.clear()
            except (RedisError, OSError, FirmqError) as error:
                log.warning("jobs of RQ programs are not taken: %s", error)
                self._stopping.wait(AFTER_AN_ERROR)


def _reason(state: str, error: bytes) -> str:
    try:
        about = json.loads(error)
        return f"{about['type']}: {about['message']}"
    except (ValueError, KeyError, TypeError):
        return f"the task of this job was {state}"
