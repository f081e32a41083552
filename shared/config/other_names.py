"""Names of our settings in other systems: Deckard, Redisson and workflow locks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

DECKARD = "DECKARD_"
"""Deckard's variables are ours with this in front."""
_LOCKS = "housekeeper_distributed_execution_enabled"
VARIABLES = {
    "DECKARD_REDIS_ADDRESS": "redis_host",
    "WORKFLOW_LOCK_ENABLED": _LOCKS,
    "WORKFLOW_LOCK_TIMEOUT": "housekeeper_distributed_execution_lock_ttl",
    "WORKFLOW_LOCK_WAIT_TIME": "housekeeper_lock_wait",
}
"""Other variables, and the setting that each is read as."""
_SERVER = "redisson.config.singleServerConfig"
PATHS = {
    "workflow.lock.enabled": _LOCKS,
    "workflow.lock.timeout": "housekeeper_distributed_execution_lock_ttl",
    "workflow.lock.wait-time": "housekeeper_lock_wait",
    f"{_SERVER}.address": "redis_url",
    **{f"{_SERVER}.{name}": f"redis_{name}" for name in ("username", "password", "timeout", "database")},
    f"{_SERVER}.retryAttempts": "redis_retries",
    f"{_SERVER}.retryInterval": "redis_retry_interval",
    f"{_SERVER}.connectionPoolSize": "redis_max_connections",
}
"""Places in a YAML file, and the setting that each is read as."""
WITHOUT_MEANING = {
    "redis.enabled": "Redis is always used",
    "redisson.enabled": "Redis is always used; workflow.lock.enabled turns locks on",
    f"{_SERVER}.connectionMinimumIdleSize": "connections are opened when they are needed, and kept",
    "DECKARD_HOUSEKEEPER_ENABLED": "a housekeeper is a process of its own: firmq housekeeper",
    "REDISSON_ENABLED": "Redis is always used; WORKFLOW_LOCK_ENABLED turns locks on",
}
"""Names that are accepted and change nothing, with the reason."""
OF_FEATURES = {"REDIS_PARTITIONS": "partitions"}
"""Variables without which a process would work with other data than meant, and the features that read them."""
REDISSON = "redisson."
"""Begins the places of Redisson's own options, such as threads and codec; no setting is like most of them."""
_MILLISECONDS = {f"{_SERVER}.timeout", f"{_SERVER}.retryInterval"}


def variables_of(setting: str) -> list[str]:
    """Returns the other variables that are read as a setting."""
    return [f"{DECKARD}{setting.upper()}", *(name for name, ours in VARIABLES.items() if ours == setting)]


def ours(path: str, value: Any) -> Any:
    """Returns a value of another system's YAML file as ours: Redisson's times are milliseconds."""
    return f"{value}ms" if path in _MILLISECONDS and isinstance(value, int) else value


def unfold(tree: dict[Any, Any], read: Callable[[str], Any]) -> None:
    """Replaces Redisson's configuration, which is YAML in a text, by its values."""
    inner = tree.get("redisson")
    if isinstance(inner, dict) and isinstance(text := inner.get("config"), str):
        inner["config"] = read(text)
