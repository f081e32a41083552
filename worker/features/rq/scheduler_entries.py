"""The entries of rq-scheduler: `enqueue_at`, `enqueue_in`, `schedule` and `cron` of RQ programs.

An entry is an RQ job and its next time in a sorted set. rq-scheduler's own loop cannot be used here: it reads the
function's name, so it unpickles the arguments and needs the program's modules, and it enqueues a job in two steps. Here
only the job's `meta` is read, which has the repetition of the entry, and `rq_entry.lua` does the rest in one step.
"""

from __future__ import annotations

import json
import logging
import time
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from rq_scheduler.utils import get_next_scheduled_time, to_unix

from firmq.shared.domain.lock import NO_LOCK, FencingToken
from firmq.shared.redis.client import text, translated
from firmq.shared.redis.scripts import Scripts
from firmq.worker.features.rq.allowed import Allowed, JobRefused

log = logging.getLogger(__name__)
# Each look at a cron string would print that a newer crontab counts in UTC.
warnings.filterwarnings("ignore", category=FutureWarning, module="rq_scheduler")

PAGE = 100
PASS = 70
"""Seconds after which rq-scheduler considers the holder of a lock dead; a pass is much shorter."""


@dataclass(frozen=True, slots=True)
class Next:
    """The next time of an entry (Unix time in seconds; None: it is removed), and its `meta` if that changes."""

    at: int | None
    meta: Mapping[str, Any] | None = None


class SchedulerEntries:
    """Enqueues due entries of some RQ queues, as a process of rq-scheduler beside the others."""

    def __init__(self, scripts: Scripts, queues: Collection[str]) -> None:
        """`queues` are RQ's; entries of others are left to rq-scheduler."""
        self.scripts = scripts
        self.redis: Any = scripts.redis
        self.queues = frozenset(queues)
        self._allowed = Allowed((), pickles=True)
        self._unreadable: set[str] = set()

    def enqueue_due(self, fencing_token: FencingToken = NO_LOCK) -> int:
        """Enqueues the jobs of due entries; returns how many. Does nothing while a process of rq-scheduler does it."""
        redis, lock, value = self.redis, self.scripts.keys.RQ_SCHEDULER_LOCK, uuid4().hex
        with translated():
            if not redis.zcount(self.scripts.keys.RQ_SCHEDULER_ENTRIES, "-inf", time.time()):
                return 0
            if not redis.set(lock, value, ex=PASS, nx=True):
                return 0
            try:
                return self._enqueue(fencing_token, time.monotonic() + PASS / 2)
            finally:
                if text(redis.get(lock) or "") == value:
                    redis.delete(lock)

    def _enqueue(self, fencing_token: FencingToken, until: float) -> int:
        keys, enqueued, left = self.scripts.keys, 0, 0
        while time.monotonic() < until:
            due = self.redis.zrange(
                keys.RQ_SCHEDULER_ENTRIES, "-inf", time.time(), byscore=True, offset=left, num=PAGE, withscores=True
            )
            for member, score in due:
                if self._is_left(fields := self._fields(job := text(member))):
                    left += 1
                    continue
                try:
                    following = self._following(fields)
                except Exception as error:  # a program's own meta, or a cron string that rq-scheduler refuses too
                    left += 1
                    self._warn(job, error)
                    continue
                at = "" if following.at is None else following.at
                meta = b"" if following.meta is None else self._dumps(fields["meta"], following.meta)
                arguments = (fencing_token.lock, fencing_token.token, job, repr(score), at, meta)
                enqueued += int(self.scripts.call("rq_entry", *arguments))
            if len(due) < PAGE:
                break
        return enqueued

    def _fields(self, job: str) -> dict[str, bytes | None]:
        names = ("origin", "meta", "dependency_ids", "allow_dependency_failures")
        return dict(zip(names, self.redis.hmget(self.scripts.keys.rq_job(job), names), strict=True))

    def _is_left(self, fields: Mapping[str, bytes | None]) -> bool:
        """Returns whether an entry is of another queue, or waits for jobs that it depends on."""
        if fields["origin"] is None:
            return False
        return text(fields["origin"]) not in self.queues or self._depends(fields)

    def _depends(self, fields: Mapping[str, bytes | None]) -> bool:
        ids = json.loads(fields["dependency_ids"] or b"[]")
        met = {None, "finished", *(("failed", "stopped") if fields["allow_dependency_failures"] == b"1" else ())}
        keys = self.scripts.keys
        found = [self.redis.hget(keys.rq_job(each), "status") for each in ids]
        return not {text(each) if each else None for each in found} <= met

    def _following(self, fields: Mapping[str, bytes | None]) -> Next:
        """Returns the next time of an entry, by rq-scheduler's own rules."""
        meta = self._loads(fields["meta"])
        if meta.get("queue_class_name"):
            raise JobRefused(f"it names the queue class {meta['queue_class_name']}: run rq-scheduler for it")
        interval, cron, repeat = meta.get("interval"), meta.get("cron_string"), meta.get("repeat")
        left = int(repeat) - 1 if repeat else repeat
        changed = {**meta, "repeat": left} if repeat else None
        if not (interval or cron) or left == 0:
            return Next(None, changed)
        if interval:
            return Next(int(time.time()) + int(interval), changed)
        return Next(to_unix(get_next_scheduled_time(cron, use_local_timezone=meta.get("use_local_timezone"))), changed)

    def _loads(self, meta: bytes | None) -> dict[str, Any]:
        found = self._allowed.serializer_of(meta).loads(meta) if meta else {}
        if not isinstance(found, dict):
            raise JobRefused("its meta is not a dictionary")
        return found

    def _dumps(self, before: bytes | None, meta: Mapping[str, Any]) -> bytes:
        return bytes(self._allowed.serializer_of(before).dumps(dict(meta)))

    def _warn(self, job: str, error: Exception) -> None:
        """Warns once of an entry that is left as it is."""
        if job not in self._unreadable and len(self._unreadable) < 1000:
            self._unreadable.add(job)
            log.warning("rq-scheduler's entry %s is not enqueued: %s", job, error)
