"""Warnings about variables that are not read: named as in Deckard or Redisson, service links, or without effect."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping

from taskqueue.shared.config.settings import Settings, is_service_link

log = logging.getLogger(__name__)

_PREFIXES = ("DECKARD_", "WORKFLOW_", "REDISSON_")
_LINK = "its value is a service link of Kubernetes or Docker: set enableServiceLinks: false for the pod"
_NEED = {
    "rediss": ("REDIS_CA_FILE", "REDIS_CERT_FILE", "REDIS_KEY_FILE"),
    "+sentinel": ("REDIS_SENTINEL_USERNAME", "REDIS_SENTINEL_PASSWORD"),
}
_OURS = {
    "DECKARD_REDIS_ADDRESS": "set REDIS_HOST, or REDIS_URL",
    "DECKARD_HOUSEKEEPER_ENABLED": "start a housekeeper as a process of its own: taskqueue housekeeper",
    "WORKFLOW_LOCK_ENABLED": "set HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED",
    "WORKFLOW_LOCK_TIMEOUT": "set HOUSEKEEPER_DISTRIBUTED_EXECUTION_LOCK_TTL",
    "WORKFLOW_LOCK_WAIT_TIME": "set HOUSEKEEPER_LOCK_WAIT",
    "REDISSON_ENABLED": "set REDIS_URL, and HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED for locks",
}


def hints(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields each variable that is not read because of its name or of another one, and what to do about it."""
    yield from ((name, why) for name, why in sorted(_without_effect(environment).items()) if environment.get(name))
    for name in sorted(environment):
        prefix = next((each for each in _PREFIXES if name.startswith(each)), None)
        if prefix is None:
            continue
        ours = name.removeprefix(prefix)
        known = (
            f"set {ours}" if ours.lower() in Settings.model_fields else "docs/reference/settings.md lists all settings"
        )
        yield name, _OURS.get(name, known)


def _without_effect(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns service links, and the settings of Redis that others make useless, each with the reason."""
    named = next((name for name in ("REDIS_PARTITIONS", "REDIS_URL") if environment.get(name)), "")
    url = environment.get(named, "")
    reasons = dict.fromkeys(("REDIS_HOST", "REDIS_PORT"), f"{named} has the host and the port") if named else {}
    for scheme, names in _NEED.items():
        if scheme not in url:
            reasons |= dict.fromkeys(names, f"it needs a REDIS_URL with {scheme}")
    if not environment.get("REDIS_PASSWORD"):
        reasons["REDIS_USERNAME"] = "a user needs REDIS_PASSWORD"
    elif re.search("//[^/]*:[^/]*@", url):
        reasons["REDIS_PASSWORD"] = f"{named} has a password"
    return reasons | {name.upper(): _LINK for name in Settings.model_fields if is_service_link(name, environment)}


def warn() -> None:
    """Logs a warning for each such variable of this process, without its value."""
    for name, instead in hints(os.environ):
        log.warning("%s is not read: %s", name, instead)
