"""Health endpoints: liveness, readiness, and findings that need attention."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from redis.exceptions import ResponseError

from gateway import schemas
from gateway.circuit_breaker import CircuitBreaker
from gateway.http import errors
from gateway.http.endpoints import Answer, Reply, endpoint
from gateway.http.errors import Refusal
from gateway.readiness import Readiness
from shared.config.settings import Settings
from shared.doctor import Level, examine, worst
from shared.doctor.system import check_capacity, check_housekeeping
from shared.errors import StoreUnavailable
from shared.redis.client import translated
from shared.stores.queues import QueueInfo, Queues
from shared.stores.workers import WorkerInfo, Workers

ALIVE = {"status": "ok"}
NEARLY_FULL = 0.9
EXAMINING = 2
"""Examinations at a time: each takes a thread for seconds when Jaeger or Prometheus does not answer."""


class HealthRoutes:
    """Health, for operators and orchestrators."""

    def __init__(
        self,
        settings: Settings,
        queues: Queues,
        workers: Workers,
        readiness: Readiness,
        version: str,
        circuit_breaker: CircuitBreaker,
        keys: bool,
    ) -> None:
        """`keys`: clients need an API key, so endpoints without one report only what orchestrators need."""
        self.settings = settings
        self.redis = queues.scripts.redis
        self.queues = queues
        self.workers = workers
        self.readiness = readiness
        self.version = version
        self.circuit_breaker = circuit_breaker
        self.keys = keys
        self.examining = threading.BoundedSemaphore(EXAMINING)

    @endpoint(
        "GET",
        "/health",
        tag="health",
        answers={
            200: Answer(description="Tasks are accepted; `notes` lists findings.", model=schemas.Health),
            503: Answer(description="Tasks are not accepted.", model=schemas.Health),
        },
        store=False,
    )
    def health(self) -> Reply:
        """Shows the health of Redis, workers and queues."""
        try:
            with self.circuit_breaker.guarding():
                found = self._look()
        except StoreUnavailable as error:
            found = self._without_store(str(error))
        return Reply(content=found, status=503 if found.status == "unavailable" else 200)

    @endpoint(
        "GET",
        "/health/detail",
        tag="health",
        answers={200: Answer(description="Every check with its finding and advice.", model=schemas.HealthDetail)},
        problems=(errors.ASKED_TOO_OFTEN,),
        store=False,
    )
    def detail(self) -> Reply:
        """Examines Redis, settings, workers, housekeeping, Jaeger and Prometheus, with advice on each finding."""
        if not self.examining.acquire(blocking=False):
            headers = {"Retry-After": str(errors.RETRY_AFTER)}
            detail = f"{EXAMINING} examinations are in progress: try again after Retry-After"
            raise Refusal(errors.ASKED_TOO_OFTEN, detail, headers=headers)
        try:
            findings = examine(self.settings, self.redis)
        finally:
            self.examining.release()
        checks = [schemas.HealthCheck(**asdict(each)) for each in findings]
        return Reply(content=schemas.HealthDetail(status=worst(findings).value, version=self.version, checks=checks))

    @endpoint(
        "GET",
        "/health/live",
        tag="health",
        scope=None,
        answers={200: Answer(description="The process is alive.", model=schemas.Alive)},
        store=False,
    )
    def live(self) -> Reply:
        """Liveness probe. Does not check Redis, so a Redis outage does not restart the process."""
        return Reply(content=ALIVE)

    @endpoint(
        "GET",
        "/health/ready",
        tag="health",
        scope=None,
        answers={
            200: Answer(description="Tasks are accepted.", model=schemas.Health),
            503: Answer(description="Tasks are not accepted; `notes` gives the reasons.", model=schemas.Health),
        },
        store=False,
    )
    def ready(self) -> Reply:
        """Readiness probe. Ready when Redis accepts and keeps writes, and task types are registered."""
        answer = self.health()
        if self.keys and isinstance(answer.content, schemas.Health):
            reachable = schemas.StoreHealth(reachable=answer.content.redis.reachable)
            about: dict[str, Any] = {"redis": reachable, "workers": None, "queues": None, "notes": []}
            answer.content = answer.content.model_copy(update=about)
        return answer

    def _look(self) -> schemas.Health:
        info = self._info()
        stops, notes = _judge(info)
        stops += self.readiness.obstacles()
        queues = self.queues.overview()
        register = self.workers.look()
        notes += self._warnings(register.live, queues)
        alive = len(register.live) + len(register.unreadable)
        if not alive:
            notes.append("no worker is alive: tasks are accepted but not run; start one with python -m worker")
        status = "unavailable" if stops else "degraded" if notes else "ok"
        return schemas.Health(
            status=status,  # type: ignore[arg-type]  # one of the three
            version=self.version,
            redis=_store(info),
            workers=alive,
            queues={queue.name: queue.pending for queue in queues},
            notes=stops + notes,
        )

    def _warnings(self, workers: Sequence[WorkerInfo], queues: Sequence[QueueInfo]) -> list[str]:
        """Returns the doctor's findings about workers and housekeeping."""
        with translated():
            now_us = self.queues.scripts.now_us()
            findings = [check_capacity(workers, queues, now_us), check_housekeeping(self.redis, self.settings)]
        return [f"{each.seen}; {each.advice}" for each in findings if each.level is not Level.OK]

    def _info(self) -> Mapping[str, Any]:
        """Returns INFO of Redis; empty when the Redis user may not run it, which is no fault."""
        with translated():
            try:
                info: Mapping[str, Any] = self.redis.info()
            except ResponseError:
                self.redis.ping()
                return {}
        return info

    def _without_store(self, reason: str) -> schemas.Health:
        return schemas.Health(
            status="unavailable",
            version=self.version,
            redis=schemas.StoreHealth(reachable=False, error=reason),
            workers=None,
            queues=None,
            notes=[reason],
        )


def _store(info: Mapping[str, Any]) -> schemas.StoreHealth:
    append_only = info.get("aof_enabled")
    return schemas.StoreHealth(
        reachable=True,
        version=info.get("valkey_version") or info.get("redis_version"),
        eviction_policy=info.get("maxmemory_policy"),
        append_only=bool(append_only) if append_only is not None else None,
        used_memory_bytes=info.get("used_memory"),
    )


def _judge(info: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Returns what endangers tasks, and what only deserves attention."""
    stops, notes = [], []
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy.startswith("allkeys"):
        stops.append(f"maxmemory-policy is {policy}: Redis may evict tasks; set it to noeviction")
    if info.get("role") == "slave":
        stops.append("this Redis is a replica and refuses writes: point REDIS_URL at the primary")
    if info.get("loading"):
        stops.append("Redis is loading its data: wait until it has finished")
    if info.get("aof_enabled") == 0:
        notes.append("Redis has no append-only file: its restart may lose tasks; set appendonly yes")
    most, used = info.get("maxmemory") or 0, info.get("used_memory") or 0
    if most and used > NEARLY_FULL * most:
        notes.append(f"Redis uses {used / most:.0%} of maxmemory: submissions are refused when it is full; raise it")
    return stops, notes
