"""Starts a part of Firmq with the settings of a Django project."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import NoReturn

from django.conf import settings

HANDLERS = "firmq.django.handlers"


def start(part: str) -> NoReturn:
    """Replaces this process by `firmq PART`."""
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, "-m", "firmq", part], environment())  # noqa: S606


def environment(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns the environment of a part: FIRMQ of Django's settings, overridden by the given environment."""
    given = os.environ if given is None else given
    configured = {name: _text(value) for name, value in getattr(settings, "FIRMQ", {}).items()}
    merged = {**configured, **given}
    modules = [name for name in merged.get("TASK_MODULES", "").split(",") if name]
    merged["TASK_MODULES"] = ",".join(dict.fromkeys([*modules, HANDLERS]))
    # Where manage.py found the project, the part finds it, too.
    paths = [os.path.abspath(sys.path[0]), merged.get("PYTHONPATH", "")]
    merged["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return merged


def _text(value: object) -> str:
    """Returns a setting as its environment variable has it: names with commas between them, structures as JSON."""
    plain = _plain(value)
    if isinstance(plain, list) and not any(isinstance(each, dict | list) for each in plain):
        return ",".join(map(str, plain))
    return json.dumps(plain) if isinstance(plain, dict | list) else str(plain)


def _plain(value: object) -> object:
    """Returns a value as JSON has it. None is an empty text, which means "not set"."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value if isinstance(value, bool | int | float) else "" if value is None else str(value)
