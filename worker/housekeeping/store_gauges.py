"""State of Redis, measured by the leader: memory, eviction, persistence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric

_NUMBERS = (
    ("used_memory", "used_memory_bytes", "Memory that Redis uses."),
    ("maxmemory", "max_memory_bytes", "Memory that Redis may use; 0: any amount."),
    ("evicted_keys", "evicted_keys", "Keys that Redis has evicted since it was started."),
    ("aof_enabled", "append_only", "Whether Redis keeps an append-only file, without which a restart loses tasks."),
    ("connected_clients", "clients", "Connections to Redis."),
    ("instantaneous_ops_per_sec", "commands_per_second", "Commands that Redis runs per second."),
)


def store_gauges(info: Mapping[str, Any]) -> Iterator[Metric]:
    """Yields gauges from INFO; none when this user may not read it, which is not an error."""
    if not info:
        return
    for field, name, text in _NUMBERS:
        if field in info:
            yield GaugeMetricFamily(f"firmq_redis_{name}", text, float(info[field]))
    policy = GaugeMetricFamily("firmq_redis_eviction_policy", "The eviction policy of Redis.", labels=["policy"])
    policy.add_metric([str(info.get("maxmemory_policy", "unknown"))], 1)
    yield policy
