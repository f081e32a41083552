"""Health endpoints: liveness, readiness, and findings that need attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firmq.gateway import schemas
from firmq.gateway.circuit_breaker import CircuitBreaker
from firmq.gateway.http.across import Across
from firmq.gateway.http.endpoints import Answer, Reply, endpoint
from firmq.gateway.readiness import Readiness
from firmq.shared.conditions.findings import Finding, Level, judged
from firmq.shared.conditions.observation import Observer
from firmq.shared.config.settings import Settings
from firmq.shared.errors import StoreUnavailable
from firmq.shared.redis.scripts import Scripts

ALIVE = {"status": "ok"}
RISKS = ("redis role", "eviction", "persistence", "memory")
PARTS = ("workers", "queues", "capacity", "housekeeping", "relay")
"""Checks for dangers to tasks, and for work that waits."""
STOPPING = ("redis role", "eviction")
"""Those whose errors mean that no task is accepted, or not kept."""


class HealthRoutes:
    """Health, for operators and orchestrators."""

    def __init__(
        self,
        settings: Settings,
        scripts: Scripts,
        readiness: Readiness,
        version: str,
        circuit_breaker: CircuitBreaker,
        keys: bool,
    ) -> None:
        """`keys`: clients need an API key, so endpoints without one report only the minimum for orchestrators."""
        self.observer = Observer(scripts, settings)
        self.readiness = readiness
        self.version = version
        self.circuit_breaker = circuit_breaker
        self.keys = keys

    @endpoint(
        "GET",
        "/health",
        Across.HEALTH,
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
        "/health/live",
        Across.FIRST,
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
        Across.HEALTH,
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
        now = self.observer.glance()
        found = judged(now, *RISKS, *PARTS)
        stops = [_note(each) for each in found if each.check in STOPPING and each.level is Level.ERROR]
        stops += self.readiness.obstacles()
        notes = [note for each in found if (note := _note(each)) not in stops]
        status = "unavailable" if stops else "degraded" if notes else "ok"
        return schemas.Health(
            status=status,  # type: ignore[arg-type]  # one of the three
            version=self.version,
            redis=_store(now.info),
            workers=len(now.workers) + len(now.unreadable_workers),
            queues={queue.name: queue.pending for queue in now.queues},
            notes=stops + notes,
        )

    def _without_store(self, reason: str) -> schemas.Health:
        return schemas.Health(
            status="unavailable",
            version=self.version,
            redis=schemas.StoreHealth(reachable=False, error=reason),
            workers=None,
            queues=None,
            notes=[reason],
        )


def _note(finding: Finding) -> str:
    return f"{finding.seen}; {finding.advice}"


def _store(info: Mapping[str, Any]) -> schemas.StoreHealth:
    append_only = info.get("aof_enabled")
    return schemas.StoreHealth(
        reachable=True,
        version=info.get("valkey_version") or info.get("redis_version"),
        eviction_policy=info.get("maxmemory_policy"),
        append_only=bool(append_only) if append_only is not None else None,
        used_memory_bytes=info.get("used_memory"),
    )
