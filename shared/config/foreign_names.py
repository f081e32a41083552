"""Warnings about variables that are not read: without a meaning here, service links, or without effect."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping

from firmq.shared.config import other_names
from firmq.shared.config.settings import OF_FEATURES, Settings, is_service_link, yaml_path

log = logging.getLogger(__name__)

_PREFIXES = ("DECKARD_", "WORKFLOW_", "REDISSON_")
_LINK = "its value is a service link of Kubernetes or Docker: set enableServiceLinks: false for the pod"
_NEED = {
    "rediss": ("REDIS_CA_FILE", "REDIS_CERT_FILE", "REDIS_KEY_FILE"),
    "+sentinel": ("REDIS_SENTINEL_USERNAME", "REDIS_SENTINEL_PASSWORD"),
}


def hints(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields each variable that is not read because of its name or of another one, and the remedy."""
    yield from ((name, why) for name, why in sorted(_without_effect(environment).items()) if environment.get(name))
    for name in sorted(environment):
        ours = other_names.VARIABLES.get(name, name.removeprefix(other_names.DECKARD).lower())
        if name.startswith(_PREFIXES) and ours not in Settings.model_fields:
            yield name, other_names.WITHOUT_MEANING.get(name, "docs/reference/settings.md lists all settings")


def _without_effect(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns service links, and the settings of Redis that others make useless, each with the reason."""
    several = [name.upper() for each in OF_FEATURES for name in each.ADDRESSES]
    named = next((name for name in (*several, "REDIS_URL") if environment.get(name)), "")
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


def warn(settings: Settings) -> None:
    """Logs a warning for each such variable of this process, and each such setting of its file, without the value."""
    given = {name.upper(): str(getattr(settings, name) or "") for name in settings.model_fields_set}
    read = [(setting, name) for setting in given for name in other_names.variables_of(setting.lower())]
    read += [(setting, f"{setting}_FILE") for setting in given]
    for setting, name in read:
        if os.environ.get(name) and not name.endswith("_FILE"):
            log.info("%s is read as %s", name, setting)
    for name, instead in hints({**os.environ, **given}):
        names = [name, *(each for setting, each in read if setting == name)]
        place = f"{yaml_path(name.lower())} in {os.environ.get('CONFIG_FILE')}" if name in given else name
        log.warning("%s is not read: %s", next(filter(os.environ.get, names), place), instead)
