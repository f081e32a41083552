"""Whether this Redis is fit to keep tasks: from what it says of itself, and from how it answers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shared.doctor.findings import Finding, doubtful, fine, wrong

if TYPE_CHECKING:
    from redis import Redis

    from shared.config.settings import Settings

FILLING, NEARLY_FULL = 0.75, 0.9
SLOW_MS, TOO_SLOW_MS = 5.0, 50.0
SKEW, GREAT_SKEW = 1.0, 30.0
_PINGS = 15


def check_info(said: Mapping[str, Any], settings: Settings) -> list[Finding]:
    """Everything that INFO tells."""
    if not said:
        return [doubtful("redis version", "this user may not ask Redis about itself", "allow it the command INFO")]
    return [_version(said), _role(said), _eviction(said), _persistence(said), _memory(said), _replicas(said, settings)]


def _version(said: Mapping[str, Any]) -> Finding:
    if valkey := said.get("valkey_version"):
        return fine("redis version", f"Valkey {valkey}")
    version = str(said.get("redis_version", "?"))
    if version.startswith("6."):
        return doubtful("redis version", f"Redis {version}", "it works; 7.0 or newer is looked after longer")
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
        return wrong(
            "eviction", f"maxmemory-policy is {policy}: a full Redis throws tasks away", "set it to noeviction"
        )
    if policy != "noeviction":
        return doubtful(
            "eviction",
            f"maxmemory-policy is {policy}: a full Redis throws away what it needs to see workers and locks",
            "set it to noeviction",
        )
    return fine("eviction", "noeviction")


def _persistence(said: Mapping[str, Any]) -> Finding:
    if said.get("aof_enabled"):
        if said.get("aof_last_write_status", "ok") != "ok":
            return wrong("persistence", "the append-only file cannot be written", "see to the disk of Redis")
        return fine("persistence", "append-only file")
    if said.get("rdb_last_bgsave_status", "ok") != "ok":
        return wrong("persistence", "the last snapshot failed", "see to the disk of Redis, and set appendonly yes")
    return doubtful(
        "persistence",
        "there is no append-only file: when Redis ends, what it took since its last snapshot is gone",
        "set appendonly yes (at a managed Redis: choose persistence, or replicas with SUBMIT_REPLICAS)",
    )


def _memory(said: Mapping[str, Any]) -> Finding:
    most, used = int(said.get("maxmemory") or 0), int(said.get("used_memory") or 0)
    if not most:
        return doubtful(
            "memory",
            f"{_megabytes(used)} used, and no maxmemory: Redis grows until the system kills it",
            "set maxmemory to at most three quarters of the machine's, so that submissions are refused instead",
        )
    seen = f"{used / most:.0%} of {_megabytes(most)} used"
    advice = "give Redis more memory, or keep less: RETENTION_COMPLETED, MAX_COMPLETED, MAX_RESULT_BYTES"
    if used > NEARLY_FULL * most:
        return wrong("memory", f"{seen}: submissions are refused when it is full", advice)
    return doubtful("memory", seen, advice) if used > FILLING * most else fine("memory", seen)


def _replicas(said: Mapping[str, Any], settings: Settings) -> Finding:
    number = int(said.get("connected_slaves") or 0)
    seen = f"{number} connected"
    if settings.submit_replicas > number:
        return wrong(
            "replicas",
            f"{seen}, and SUBMIT_REPLICAS={settings.submit_replicas}: every submission is refused",
            "bring the replicas back, or lower SUBMIT_REPLICAS",
        )
    if "+sentinel:" in settings.store_url and number == 0:
        return doubtful("replicas", seen, "without a replica there is nobody to take over: start one")
    return fine("replicas", seen)


def check_time(redis: Redis) -> list[Finding]:
    """How fast it answers, and how far its clock is from ours."""
    waits, skews = [], []
    for _ in range(_PINGS):
        began, at = time.perf_counter(), time.time()
        seconds, us = redis.time()
        waits.append((time.perf_counter() - began) * 1000)
        skews.append(seconds + us / 1_000_000 - at - waits[-1] / 2000)
    return [_latency(statistics.median(waits)), _skew(statistics.median(skews))]


def _latency(milliseconds: float) -> Finding:
    seen = f"{milliseconds:.2f} ms from here and back"
    advice = "run the parts nearer to Redis; look at its SLOWLOG and at the load of its machine"
    if milliseconds > TOO_SLOW_MS:
        return wrong("latency", seen, advice)
    return doubtful("latency", seen, advice) if milliseconds > SLOW_MS else fine("latency", seen)


def _skew(seconds: float) -> Finding:
    seen = f"the clocks of Redis and of this machine are {abs(seconds):.2f} s apart"
    if abs(seconds) < SKEW:
        return fine("clock", seen)
    advice = "run NTP on both: Redis' clock decides when tasks are due, this one stamps logs and traces"
    return (wrong if abs(seconds) > GREAT_SKEW else doubtful)("clock", seen, advice)


def _megabytes(size: int) -> str:
    return f"{size / 1_048_576:,.0f} MB"
