"""Checks whether this Redis is fit to store tasks: its INFO, its latency and its clock."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from firmq.shared.doctor.findings import Finding, Level, doubtful, fine, wrong

if TYPE_CHECKING:
    from redis import Redis

    from firmq.shared.config.settings import Settings

FILLING, NEARLY_FULL = 0.75, 0.9
SLOW_MS, TOO_SLOW_MS = 5.0, 50.0
SKEW, GREAT_SKEW = 1.0, 30.0
_PINGS = 15


def check_info(said: Mapping[str, Any], settings: Settings) -> list[Finding]:
    """Returns the findings from INFO."""
    if not said:
        return [doubtful("redis version", "this Redis user may not run INFO", "allow it the command INFO")]
    return [_version(said), _role(said), _eviction(said), _persistence(said), _memory(said), _replicas(said, settings)]


def check_risks(said: Mapping[str, Any], filling: float = FILLING) -> list[Finding]:
    """Returns what endangers tasks now, for alerts; nothing without INFO.

    `filling` is the share of its memory from which Redis counts as filling.
    """
    if not said:
        return []
    found = [_role(said), _eviction(said), _persistence(said)]
    found += [_memory(said, filling)] if said.get("maxmemory") else []
    return [each for each in found if each.level is not Level.OK]


def _version(said: Mapping[str, Any]) -> Finding:
    if valkey := said.get("valkey_version"):
        return fine("redis version", f"Valkey {valkey}")
    version = str(said.get("redis_version", "?"))
    if version.startswith("6."):
        return doubtful(
            "redis version", f"Redis {version}", "it works, but upgrade to 7.0 or newer, which is maintained longer"
        )
    return fine("redis version", f"Redis {version}")


def _role(said: Mapping[str, Any]) -> Finding:
    if said.get("role") == "slave":
        return wrong(
            "redis role",
            f"it is a replica of {said.get('master_host')}:{said.get('master_port')} and takes no writes",
            "point REDIS_URL at the primary, or use redis+sentinel:// so that it is found",
        )
    return fine("redis role", "primary")


def _eviction(said: Mapping[str, Any]) -> Finding:
    policy = str(said.get("maxmemory_policy", "noeviction"))
    if policy.startswith("allkeys"):
        return wrong("eviction", f"maxmemory-policy is {policy}: a full Redis evicts tasks", "set it to noeviction")
    if policy != "noeviction":
        return doubtful(
            "eviction",
            f"maxmemory-policy is {policy}: a full Redis evicts keys of workers and locks",
            "set it to noeviction",
        )
    return fine("eviction", "noeviction")


def _persistence(said: Mapping[str, Any]) -> Finding:
    if said.get("aof_enabled"):
        if said.get("aof_last_write_status", "ok") != "ok":
            return wrong("persistence", "the append-only file cannot be written", "check the disk of Redis")
        return fine("persistence", "append-only file")
    if said.get("rdb_last_bgsave_status", "ok") != "ok":
        return wrong("persistence", "the last snapshot failed", "check the disk of Redis, and set appendonly yes")
    return doubtful(
        "persistence",
        "there is no append-only file: a crash of Redis loses all writes since its last snapshot",
        "set appendonly yes (managed Redis: enable persistence, or replicas with SUBMIT_REPLICAS)",
    )


def _memory(said: Mapping[str, Any], filling: float = FILLING) -> Finding:
    most, used = int(said.get("maxmemory") or 0), int(said.get("used_memory") or 0)
    if not most:
        return doubtful(
            "memory",
            f"{_megabytes(used)} used, without maxmemory: Redis grows until the system kills it",
            "set maxmemory to at most two thirds of the machine's memory: a full Redis then rejects submissions",
        )
    seen = f"{used / most:.0%} of {_megabytes(most)} used"
    advice = "give Redis more memory, or lower RETENTION_COMPLETED, MAX_COMPLETED or MAX_RESULT_BYTES"
    if used > NEARLY_FULL * most:
        return wrong("memory", f"{seen}: submissions are rejected when it is full", advice)
    return doubtful("memory", seen, advice) if used > filling * most else fine("memory", seen)


def _replicas(said: Mapping[str, Any], settings: Settings) -> Finding:
    number = int(said.get("connected_slaves") or 0)
    seen = f"{number} connected"
    if settings.submit_replicas > number:
        return wrong(
            "replicas",
            f"{seen}, but SUBMIT_REPLICAS={settings.submit_replicas}: every submission is rejected",
            "start the missing replicas, or lower SUBMIT_REPLICAS",
        )
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


def _megabytes(size: int) -> str:
    return f"{size / 1_048_576:,.0f} MB"
