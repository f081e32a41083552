"""Warnings about variables named as in Deckard or Redisson: they are not read, and the warning gives our name."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping

from taskqueue.shared.config.settings import Settings

log = logging.getLogger(__name__)

_PREFIXES = ("DECKARD_", "WORKFLOW_", "REDISSON_")
_OURS = {
    "DECKARD_REDIS_ADDRESS": "set REDIS_HOST, or REDIS_URL",
    "DECKARD_HOUSEKEEPER_ENABLED": "start a housekeeper as a process of its own: taskqueue housekeeper",
    "WORKFLOW_LOCK_ENABLED": "set HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED",
    "WORKFLOW_LOCK_TIMEOUT": "set HOUSEKEEPER_DISTRIBUTED_EXECUTION_LOCK_TTL",
    "WORKFLOW_LOCK_WAIT_TIME": "set HOUSEKEEPER_LOCK_WAIT",
    "REDISSON_ENABLED": "set REDIS_URL, and HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED for locks",
}


def hints(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields each variable that is not read because of its name, and what to set instead."""
    for name in sorted(environment):
        prefix = next((each for each in _PREFIXES if name.startswith(each)), None)
        if prefix is None:
            continue
        ours = name.removeprefix(prefix)
        known = f"set {ours}" if ours.lower() in Settings.model_fields else "the README lists all settings"
        yield name, _OURS.get(name, known)


def warn() -> None:
    """Logs a warning for each such variable of this process, without its value."""
    for name, instead in hints(os.environ):
        log.warning("%s is not read: %s", name, instead)
