"""Starts a part of Task Queue with the settings of a Django project."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import NoReturn

from django.conf import settings

HANDLERS = "taskqueue.django.handlers"


def start(part: str) -> NoReturn:
    """Replaces this process by `taskqueue PART`."""
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, "-m", "taskqueue", part], environment())  # noqa: S606


def environment(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns the environment of a part: TASKQUEUE of Django's settings, overridden by the given environment."""
    given = os.environ if given is None else given
    configured = {name: _text(value) for name, value in getattr(settings, "TASKQUEUE", {}).items()}
    merged = {**configured, **given}
    modules = [name for name in merged.get("TASK_MODULES", "").split(",") if name]
    merged["TASK_MODULES"] = ",".join(dict.fromkeys([*modules, HANDLERS]))
    # Where manage.py found the project, the part finds it, too.
    paths = [os.path.abspath(sys.path[0]), merged.get("PYTHONPATH", "")]
    merged["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return merged


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
