"""Checks whether this Redis is fit to store tasks: its INFO, its latency and its clock."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from firmq.shared.conditions.conditions import memory_used
from firmq.shared.conditions.findings import Finding, doubtful, fine, judged, judged_or_fine, wrong
from firmq.shared.conditions.observation import Observation

if TYPE_CHECKING:
    from redis import Redis

    from firmq.shared.config.settings import Settings

SLOW_MS, TOO_SLOW_MS = 5.0, 50.0
SKEW, GREAT_SKEW = 1.0, 30.0
_PINGS = 15


def check_info(said: Mapping[str, Any], settings: Settings) -> list[Finding]:
    """Returns the findings from INFO."""
    if not said:
        return [doubtful("redis version", "this Redis user may not run INFO", "allow it the command INFO")]
    now = Observation(at=datetime.now(UTC), info=said, settings=settings)
    return [
        _version(said),
        *judged_or_fine(now, "redis role", "primary"),
        *judged_or_fine(now, "eviction", "noeviction"),
        *judged_or_fine(now, "persistence", "append-only file"),
        *(judged(now, "memory") or [_memory(said)]),
        _replicas(said, settings),
    ]


def _version(said: Mapping[str, Any]) -> Finding:
    if valkey := said.get("valkey_version"):
        return fine("redis version", f"Valkey {valkey}")
    version = str(said.get("redis_version", "?"))
    if version.startswith("6."):
        advice = "it works, but upgrade to 7.0 or newer, which is maintained longer"
        return doubtful("redis version", f"Redis {version}", advice)
    return fine("redis version", f"Redis {version}")


def _memory(said: Mapping[str, Any]) -> Finding:
    seen = memory_used(said)
    if said.get("maxmemory"):
        return fine("memory", seen)
    advice = "set maxmemory to at most two thirds of the machine's memory: a full Redis then rejects submissions"
    return doubtful("memory", f"{seen}, without maxmemory: Redis grows until the system kills it", advice)


def _replicas(said: Mapping[str, Any], settings: Settings) -> Finding:
    number = int(said.get("connected_slaves") or 0)
    seen = f"{number} connected"
    if settings.submit_replicas > number:
        seen += f", but SUBMIT_REPLICAS={settings.submit_replicas}: every submission is rejected"
        return wrong("replicas", seen, "start the missing replicas, or lower SUBMIT_REPLICAS")
    if "+sentinel:" in settings.store_url and number == 0:
        return doubtful("replicas", seen, "start a replica: without one there is no failover")
    return fine("replicas", seen)


def check_time(redis: Redis) -> list[Finding]:
    """Returns the findings about the latency and the clock of Redis."""
    waits, skews = [], []
    for _ in range(_PINGS):
        began, at = time.perf_counter(), time.time()
        seconds, us = redis.time()
        waits.append((time.perf_counter() - began) * 1000)
        skews.append(seconds + us / 1_000_000 - at - waits[-1] / 2000)
    return [_latency(statistics.median(waits)), _skew(statistics.median(skews))]


def _latency(milliseconds: float) -> Finding:
    seen = f"round trip {milliseconds:.2f} ms"
    advice = "run the parts closer to Redis; check its SLOWLOG and the load of its machine"
    if milliseconds > TOO_SLOW_MS:
        return wrong("latency", seen, advice)
    return doubtful("latency", seen, advice) if milliseconds > SLOW_MS else fine("latency", seen)


def _skew(seconds: float) -> Finding:
    seen = f"the clocks of Redis and of this machine are {abs(seconds):.2f} s apart"
    if abs(seconds) < SKEW:
        return fine("clock", seen)
    advice = "run NTP on both: due times follow Redis' clock, logs and traces the local one"
    return (wrong if abs(seconds) > GREAT_SKEW else doubtful)("clock", seen, advice)
