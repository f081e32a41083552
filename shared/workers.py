"""Who is working: workers announce themselves, to us and to RQ's own tools, and are gone when they fall silent."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from shared import keys
from shared.clock import instant
from shared.readable import UNREADABLE, as_declared, moment
from shared.redis_client import raw, text, translated
from shared.scripts import Scripts

if TYPE_CHECKING:
    from redis import Redis
    from redis.client import Pipeline

LIFE = 60
"""Seconds after its last heartbeat for which a worker's record is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningTask:
    """What one executor is doing."""

    id: str
    type: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """A worker as it last announced itself."""

    name: str
    host: str
    pid: int
    version: str
    queues: tuple[str, ...]
    executors: int
    started_at: datetime
    state: str = "idle"
    held: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    crashed: int = 0
    lost: int = 0
    busy_seconds: float = 0.0
    memory_bytes: int = 0
    running: tuple[RunningTask, ...] = field(default=())
    last_heartbeat_at: datetime | None = None


class Workers:
    """The register of workers."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis

    def announce(self, info: WorkerInfo) -> None:
        """A heartbeat, which a full Redis takes too."""
        Scripts(self.redis).announce(
            info.name,
            LIFE,
            json.dumps(asdict(info), default=_plain),
            info.running[0].id if info.running else "",
            json.dumps(info.queues),
            json.dumps([str(part) for pair in _rq_fields(info).items() for part in pair]),
        )

    def farewell(self, info: WorkerInfo) -> None:
        """A worker that ends in order is gone at once."""
        with self.redis.pipeline(transaction=False) as pipeline:
            pipeline.zrem(keys.WORKERS, info.name)
            pipeline.delete(keys.worker(info.name), keys.rq_worker(info.name))
            self._forget_in_rq(pipeline, info.name, info.queues)
            pipeline.execute()

    def all(self) -> list[WorkerInfo]:
        """The live workers by name."""
        return self.look()[0]

    def look(self) -> tuple[list[WorkerInfo], list[str]]:
        """The live workers by name, and the names of those whose record nobody can read.

        A worker writes its record anew within seconds. A name that stays unreadable was put there by hand.
        """
        with translated():
            seconds, _ = self.redis.time()
            rows: Any = self.redis.zrange(keys.WORKERS, 0, -1, withscores=True)
            beats: dict[str, float] = {text(name): beat for name, beat in rows}
            records = self.redis.mget([keys.worker(name) for name in beats]) if beats else []
        found: list[WorkerInfo] = []
        unreadable = []
        for (name, beat), record in zip(beats.items(), records, strict=True):
            info = _read(name, raw(record), beat) if record else None
            if info:
                found.append(info)
            elif beat > (seconds - LIFE) * 1_000_000:
                unreadable.append(name)
        return sorted(found, key=lambda info: info.name), sorted(unreadable)

    def count(self, within_seconds: float = LIFE) -> int:
        """How many have given a sign of life lately."""
        with translated():
            seconds, _ = self.redis.time()
            return int(self.redis.zcount(keys.WORKERS, (seconds - within_seconds) * 1_000_000, "+inf"))

    def drain(self, name: str) -> bool:
        """Tells a live worker to take nothing more, finish what runs, and end; whether it lives."""
        with translated():
            if self.redis.zscore(keys.WORKERS, name) is None:
                return False
            with self.redis.pipeline() as pipeline:
                pipeline.rpush(keys.control(name), "drain")
                pipeline.expire(keys.control(name), 3600)
                pipeline.execute()
        return True

    def reap(self, queues: Sequence[str]) -> int:
        """Drops workers that have fallen silent, here and in RQ's register; how many."""
        seconds, _ = self.redis.time()
        silent = self.redis.zrangebyscore(keys.WORKERS, "-inf", (seconds - LIFE) * 1_000_000, start=0, num=100)
        for name in map(text, silent):
            with self.redis.pipeline(transaction=False) as pipeline:
                pipeline.zrem(keys.WORKERS, name)
                self._forget_in_rq(pipeline, name, queues)
                pipeline.execute()
        return len(silent)

    def _forget_in_rq(self, pipeline: Pipeline, name: str, queues: Sequence[str]) -> None:
        key = keys.rq_worker(name)
        pipeline.srem(keys.RQ_WORKERS, key)
        for queue in queues:
            pipeline.srem(keys.rq_workers(queue), key)


def _rq_fields(info: WorkerInfo) -> dict[str, str | int | float]:
    """A worker as RQ's tools expect it."""
    return {
        "birth": _rq_time(info.started_at),
        "queues": ",".join(info.queues),
        "pid": info.pid,
        "hostname": info.host,
        "ip_address": "",
        "version": info.version,
        "python_version": "",
        "state": "busy" if info.running else "idle",
        "successful_job_count": info.completed,
        "failed_job_count": info.failed + info.retried + info.crashed,
        "total_working_time": info.busy_seconds,
    }


def _rq_time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _plain(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value)} has no JSON form")


def _read(name: str, record: bytes, beat: float) -> WorkerInfo | None:
    """A worker as it announced itself; None when that was damaged."""
    try:
        fields: Mapping[str, Any] = json.loads(record)
        return as_declared(
            WorkerInfo(
                **{
                    **fields,
                    "name": name,
                    "queues": tuple(fields["queues"]),
                    "running": tuple(as_declared(RunningTask(**task)) for task in fields["running"]),
                    "started_at": moment(fields["started_at"]),
                    "last_heartbeat_at": instant(beat),
                }
            )
        )
    except UNREADABLE:
        return None
