"""The register of workers, for us and for RQ's own tools; silent workers become lost."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from firmq.shared.domain.clock import instant, to_us
from firmq.shared.domain.decode import UNREADABLE, as_declared, count, moment
from firmq.shared.domain.queue_selection import matches
from firmq.shared.redis.client import raw, text, translated
from firmq.shared.redis.scripts import Scripts

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from redis import Redis

log = logging.getLogger(__name__)

HEARTBEAT = 5.0
BUSY_HEARTBEAT = 2.0
"""Seconds between two heartbeats of a worker, when idle and when busy."""
DELAY = 1.0
"""Seconds that a heartbeat may be late."""
LIFE = 60
"""Seconds after its last heartbeat for which RQ's tools show a worker, and a corrupt record counts."""
LOST_KEPT = timedelta(days=7)
LOST_MOST = 100
NO_TYPES = "-"
"""The placeholder of a worker that takes no tasks for its set of types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningTask:
    """The task of one executor; `concurrent` if that runs many at a time."""

    id: str
    type: str
    seconds: float
    concurrent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueExecutors:
    """How many executors of a worker a queue uses, and may use at most."""

    queue: str
    in_use: int
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockingType:
    """A task type that blocked the event loop of a concurrent executor, and where: `file:line in function`."""

    type: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """A worker as of its last heartbeat. `queues` are names and patterns.

    `slots` is how many tasks its executors can run at a time, `active` how many they run; `running` names some of them.
    `serial_slots` and `serial_active` count only executors that run one task at a time.
    """

    name: str
    host: str
    pid: int
    version: str
    app_version: str = ""
    queues: tuple[str, ...]
    executors: int
    slots: int = 0
    active: int = 0
    serial_slots: int = 0
    serial_active: int = 0
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
    queue_executors: tuple[QueueExecutors, ...] = field(default=())
    """Slots of each queue for which QUEUE_EXECUTORS sets a limit."""
    blocking_types: tuple[BlockingType, ...] = field(default=())
    """Types that run one at a time here until the worker restarts."""
    rq_queues: tuple[str, ...] | None = None
    """The queues of RQ_QUEUES; None for a worker of an earlier version, which does not publish them."""
    last_heartbeat_at: datetime | None = None
    reason: str | None = None
    """Why it is silent or lost, or cannot run tasks of one kind."""

    @property
    def usage(self) -> str:
        """Returns how many tasks it runs and can run: 1 of 2 processes, 0 of 100 threads."""
        threads = self.active - self.serial_active, self.slots - self.serial_slots, "threads"
        rows = (self.serial_active, self.serial_slots, "processes"), threads
        return ", ".join(f"{used:,} of {most:,} {what}" for used, most, what in rows if most) or "–"

    def takes(self, queue: str) -> bool:
        """Returns whether it takes tasks from a queue now."""
        return self.state not in ("silent", "draining") and any(matches(each, queue) for each in self.queues)

    def limit_reached(self, queue: str) -> bool:
        """Returns whether a queue uses all executors that it may have here."""
        return any(each.queue == queue and each.in_use >= each.limit for each in self.queue_executors)


def capacity(workers: Sequence[WorkerInfo]) -> str:
    """Returns how many tasks they can run at a time: 2 processes and 100 threads."""
    serial, all_ = sum(each.serial_slots for each in workers), sum(each.slots for each in workers)
    said = f"{serial:,} process{'es' if serial != 1 else ''}"
    return f"{said} and {all_ - serial:,} threads" if all_ > serial else said


@dataclass(frozen=True, slots=True, kw_only=True)
class Register:
    """All workers on record at one instant.

    A `live` one may be in state silent: it has missed two heartbeats. `lost` ones, the latest first, were silent until
    their leases had ended. Of the `unreadable` ones only the names are known: a worker rewrites its record within
    seconds, so a name that stays there was put there by hand.
    """

    live: list[WorkerInfo]
    lost: list[WorkerInfo]
    unreadable: list[str]


class Workers:
    """The register of workers; `lease` is how long a dead worker still holds its tasks."""

    def __init__(self, redis: Redis, lease: timedelta = timedelta(seconds=9)) -> None:
        self.redis = redis
        self.scripts = Scripts(redis)
        self.keys = self.scripts.keys
        self.lease = lease.total_seconds()

    def announce(self, info: WorkerInfo, types: str = NO_TYPES) -> bool:
        """Records a heartbeat, even in a full Redis; returns False when Redis lacks the set of types."""
        return announce(
            self.scripts,
            info.name,
            LIFE,
            json.dumps(asdict(info), default=_plain),
            json.dumps(_names(info)),
            json.dumps([str(part) for pair in _rq_fields(info).items() for part in pair]),
            int(LOST_KEPT.total_seconds()),
            types,
            info.host,
            json.dumps([each.type for each in info.blocking_types]),
            info.serial_slots,
            info.serial_active,
        )

    def farewell(self, info: WorkerInfo) -> None:
        """Removes a worker that shuts down cleanly, at once."""
        key = self.keys.rq_worker(info.name)
        with self.redis.pipeline(transaction=False) as pipeline:
            for register in (self.keys.WORKERS, self.keys.LOST_WORKERS, self.keys.REASSIGNED):
                pipeline.zrem(register, info.name)
            pipeline.hdel(self.keys.TYPES_OF, info.name)
            pipeline.delete(self.keys.worker(info.name), key)
            pipeline.srem(self.keys.RQ_WORKERS, key)
            for queue in _names(info):
                pipeline.srem(self.keys.rq_workers(queue), key)
            pipeline.execute()

    def all(self) -> list[WorkerInfo]:
        """Returns the live workers by name."""
        return self.look().live

    def look(self) -> Register:
        """Returns all workers on record."""
        with translated():
            now = self._now_us()
            rows: list[Any] = self.redis.zrange(self.keys.WORKERS, 0, -1, withscores=True)
            rows += self.redis.zrevrange(self.keys.LOST_WORKERS, 0, LOST_MOST - 1, withscores=True)
            beats = {text(name): beat for name, beat in reversed(rows)}
            records = self.redis.mget([self.keys.worker(name) for name in beats]) if beats else []
            reassigned = self.redis.zmscore(self.keys.REASSIGNED, list(beats)) if beats else []
        register = Register(live=[], lost=[], unreadable=[])
        for (name, beat), record, moved in zip(beats.items(), records, reassigned, strict=True):
            info = _read(name, raw(record), beat) if record else None
            self._enter(register, name, info, (now - beat) / 1_000_000, count(moved))
        register.live.sort(key=lambda info: info.name)
        register.lost.sort(key=lambda info: info.last_heartbeat_at or info.started_at, reverse=True)
        register.unreadable.sort()
        return register

    def _enter(self, register: Register, name: str, info: WorkerInfo | None, age: float, reassigned: int) -> None:
        if info is None:
            if age < LIFE:
                register.unreadable.append(name)
        elif age > self._lost_after(info):
            register.lost.append(replace(info, state="lost", running=(), reason=_reason(info, reassigned)))
        elif age > 2 * _interval(info) + DELAY:
            register.live.append(replace(info, state="silent", reason=_reason(info, reassigned)))
        else:
            register.live.append(info)

    def _lost_after(self, info: WorkerInfo | None) -> float:
        """Returns the seconds without a heartbeat after which a worker's leases have all ended."""
        if info is None:
            return LIFE
        return 2 * DELAY + max(2 * _interval(info), _interval(info) + self.lease)

    def drain(self, name: str) -> bool:
        """Asks a live worker to drain; returns whether it lives."""
        with translated():
            if self.redis.zscore(self.keys.WORKERS, name) is None:
                return False
            with self.redis.pipeline() as pipeline:
                pipeline.rpush(self.keys.control(name), "drain")
                pipeline.expire(self.keys.control(name), 3600)
                pipeline.execute()
        return True

    def reap(self, queues: Iterable[str]) -> list[str]:
        """Moves silent workers to the lost ones, here and in RQ's register; returns their names."""
        now = self._now_us()
        shortest = int((BUSY_HEARTBEAT + self.lease) * 1_000_000)
        with self.redis.pipeline(transaction=False) as pipeline:
            pipeline.zrangebyscore(self.keys.WORKERS, "-inf", now - shortest, start=0, num=100, withscores=True)
            pipeline.zcount(self.keys.LOST_WORKERS, "-inf", now - to_us(LOST_KEPT))
            rows, outdated = pipeline.execute()
        records = self.redis.mget([self.keys.worker(text(name)) for name, _ in rows]) if rows else []
        silent: list[tuple[bytes, float]] = []
        for (name, beat), record in zip(rows, records, strict=True):
            info = _read(text(name), raw(record), beat) if record else None
            if now - beat > self._lost_after(info) * 1_000_000:
                silent.append((raw(name), beat))
        if not silent and not outdated:
            return []
        lost = workers_lost(self.scripts, to_us(LOST_KEPT), LOST_MOST, queues, silent)
        for name, beat in silent:
            if text(name) in lost:
                age = round((now - max(beat, 0)) / 1_000_000, 1)
                log.warning("worker lost", extra={"worker": text(name), "silent_seconds": age})
        return lost

    def _now_us(self) -> int:
        seconds, us = self.redis.time()
        return int(seconds) * 1_000_000 + int(us)


def _interval(info: WorkerInfo) -> float:
    return HEARTBEAT if info.state == "idle" else BUSY_HEARTBEAT


def _reason(info: WorkerInfo, reassigned: int) -> str:
    since = f"no heartbeat since {info.last_heartbeat_at:%Y-%m-%d %H:%M:%S} UTC"
    given = f"{reassigned:,} {'task was' if reassigned == 1 else 'tasks were'} given to other workers"
    return f"{since}; {given}" if reassigned else since


def _rq_fields(info: WorkerInfo) -> dict[str, str | int | float]:
    """Returns the worker's fields in RQ's format."""
    return {
        "birth": _rq_time(info.started_at),
        "queues": ",".join(_names(info) or info.queues),
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


def _names(info: WorkerInfo) -> list[str]:
    """Returns the queues for RQ's tools: RQ programs' queues, else its own, without patterns, which RQ lacks."""
    return [*(info.rq_queues or (each for each in info.queues if "*" not in each))]


def _rq_time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _plain(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value)} has no JSON form")


def _known(kind: type[DataclassInstance], about: Mapping[str, Any]) -> dict[str, Any]:
    return {each.name: about[each.name] for each in fields(kind) if each.name in about}


def _read(name: str, record: bytes, beat: float) -> WorkerInfo | None:
    """Returns a worker from its record, without the fields of newer versions; None when corrupt."""
    try:
        about: Mapping[str, Any] = json.loads(record)
        return as_declared(
            WorkerInfo(
                **{
                    **_known(WorkerInfo, about),
                    "name": name,
                    "queues": tuple(about["queues"]),
                    "rq_queues": None if about.get("rq_queues") is None else tuple(about["rq_queues"]),
                    "running": tuple(
                        as_declared(RunningTask(**_known(RunningTask, each))) for each in about["running"]
                    ),
                    "queue_executors": tuple(
                        as_declared(QueueExecutors(**_known(QueueExecutors, each)))
                        for each in about.get("queue_executors", ())
                    ),
                    "blocking_types": tuple(
                        as_declared(BlockingType(**_known(BlockingType, each)))
                        for each in about.get("blocking_types", ())
                    ),
                    "started_at": moment(about["started_at"]),
                    "last_heartbeat_at": instant(beat),
                }
            )
        )
    except UNREADABLE:
        return None


def announce(
    scripts: Scripts,
    worker: str,
    rq_life: int,
    doing: str,
    queues: str,
    rq_fields: str,
    kept: int,
    types: str,
    host: str,
    blocking_types: str = "[]",
    slots: int = 0,
    active: int = 0,
) -> bool:
    """Records a worker's heartbeat, as `announce.lua` takes it; False when Redis lacks its set of task types."""
    about = (worker, rq_life, doing, queues, rq_fields, kept, types, host, blocking_types, slots, active)
    return bool(scripts.call("announce", *about))


def workers_lost(
    scripts: Scripts, kept_us: int, most: int, queues: Iterable[str], silent: Sequence[tuple[str | bytes, float]]
) -> list[str]:
    """Moves silent workers, each with its last heartbeat, to the lost ones; returns the names of those moved."""
    pairs = [part for name, beat in silent for part in (name, repr(float(beat)))]
    return [text(each) for each in scripts.call("workers_lost", kept_us, most, json.dumps(list(queues)), *pairs)]
