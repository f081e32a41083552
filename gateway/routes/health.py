"""Whether the gateway lives, whether it can take tasks, and what somebody should look at."""

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
"""How many may look at everything at a time: it takes a thread for seconds where Jaeger or Prometheus is silent."""


class HealthRoutes:
    """Health, for people and for orchestrators."""

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
        """`keys`: callers need one, so strangers are told only what orchestrators have to know."""
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
            200: Answer(description="Tasks are taken; `notes` says what to look at.", model=schemas.Health),
            503: Answer(description="Tasks are not taken.", model=schemas.Health),
        },
        store=False,
    )
    def health(self) -> Reply:
        """Says how Redis, the workers and the queues are."""
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
        answers={200: Answer(description="What was looked at, what was seen, what to do.", model=schemas.HealthDetail)},
        problems=(errors.ASKED_TOO_OFTEN,),
        store=False,
    )
    def detail(self) -> Reply:
        """Looks at Redis, settings, workers, housekeeping, Jaeger and Prometheus, and says in words what to change."""
        if not self.examining.acquire(blocking=False):
            headers = {"Retry-After": str(errors.RETRY_AFTER)}
            raise Refusal(errors.ASKED_TOO_OFTEN, "others are having this looked at just now", headers=headers)
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
        answers={200: Answer(description="The process answers.", model=schemas.Alive)},
        store=False,
    )
    def live(self) -> Reply:
        """Says that this process answers; it does not ask Redis, so that a restart is not the answer to its trouble."""
        return Reply(content=ALIVE)

    @endpoint(
        "GET",
        "/health/ready",
        tag="health",
        scope=None,
        answers={
            200: Answer(description="Tasks are taken.", model=schemas.Health),
            503: Answer(description="Tasks are not taken; `notes` says why.", model=schemas.Health),
        },
        store=False,
    )
    def ready(self) -> Reply:
        """Says whether a submission would be taken now: Redis takes and keeps it, and task types are registered."""
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
            notes.append("no worker is alive: tasks are taken but not run; start one with python -m worker")
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
        """What the doctor finds wrong with those who are to run what is taken."""
        with translated():
            now_us = self.queues.scripts.now_us()
            findings = [check_capacity(workers, queues, now_us), check_housekeeping(self.redis, self.settings)]
        return [f"{each.seen}; {each.advice}" for each in findings if each.level is not Level.OK]

    def _info(self) -> Mapping[str, Any]:
        """What INFO says; empty when this user may not ask, which is no fault."""
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
    """What keeps tasks from being safe, and what only deserves a look."""
    stops, notes = [], []
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy.startswith("allkeys"):
        stops.append(f"maxmemory-policy is {policy}: Redis may throw tasks away; set it to noeviction")
    if info.get("role") == "slave":
        stops.append("this Redis is a replica and takes no writes: point REDIS_URL at the primary")
    if info.get("loading"):
        stops.append("Redis is loading its data")
    if info.get("aof_enabled") == 0:
        notes.append("Redis keeps no append-only file: a restart of it may lose tasks; set appendonly yes")
    most, used = info.get("maxmemory") or 0, info.get("used_memory") or 0
    if most and used > NEARLY_FULL * most:
        notes.append(f"Redis uses {used / most:.0%} of maxmemory: submissions will be refused when it is full")
    return stops, notes
