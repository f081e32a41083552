"""Runs Django's own tests of task backends, or those of django-tasks, on our backend.

`python -m tests.support.django_suite FOLDER PACKAGE [SETTINGS]`: the folder holds the package of tests, which is not
part of this repository. Their two backends are replaced by those of `django_backends`.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Collection, Iterable
from typing import Any
from unittest import skip
from unittest.mock import patch

import django
from django.conf import settings
from django.test.runner import DiscoverRunner

from tests.support.django_backends import AtOnce, Keeping

NOT_FOR_US = {
    "its test changes the memory of DummyBackend": (
        "DummyBackendTestCase.test_refresh_result",
        "DummyBackendTestCase.test_refresh_result_async",
    ),
    "ImmediateBackend lacks what ours has": (
        "ImmediateBackendTestCase.test_cannot_get_result",
        "ImmediateBackendTestCase.test_cannot_refresh_result",
        "ImmediateBackendTestCase.test_cannot_pass_run_after",
        "ImmediateBackendTestCase.test_get_result_from_different_request",
    ),
}
"""Tests that cannot hold for a backend that keeps tasks elsewhere, by the reason."""
WORDED_OTHERWISE = (
    "CustomBackendTestCase.test_enqueue_async_task_on_non_async_backend",
    "CustomBackendTestCase.test_no_enqueue",
    "DummyBackendTestCase.test_validate_disallowed_async_task",
)
"""Messages of Django 6 and Python 3.12 that django-tasks 0.12 and Python 3.11 word otherwise."""


def main(folder: str, package: str, settings_module: str = "") -> int:
    """Runs the tests; returns how many failed."""
    sys.path.insert(0, folder)
    for name in [each for each in sys.modules if each.partition(".")[0] == "tests"]:
        del sys.modules[name]  # theirs may have this name
    if settings_module:
        os.environ["DJANGO_SETTINGS_MODULE"] = settings_module
    else:
        settings.configure(
            INSTALLED_APPS=[package],
            DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
            LOGGING_CONFIG=None,
            USE_TZ=True,
        )
    if own := django.VERSION < (6, 0) and not settings_module:
        _call_the_backport_django()
    django.setup()
    _replace_backends()
    runner = DiscoverRunner(verbosity=2, interactive=False)
    suite = runner.build_suite([package])
    for reason, names in {**NOT_FOR_US, **({"worded otherwise": WORDED_OTHERWISE} if own else {})}.items():
        _skip(suite, names, reason)
    with patch.object(runner, "build_suite", lambda *_: suite):
        return int(runner.run_tests([package]))


def _call_the_backport_django() -> None:
    """Makes django-tasks importable as `django.tasks`, with the names of Django 6."""
    parts = ("base", "exceptions", "backends", "backends.base", "backends.dummy", "backends.immediate", "signals")
    sys.modules["django.tasks"] = importlib.import_module("django_tasks")
    for part in parts:
        sys.modules[f"django.tasks.{part}"] = importlib.import_module(f"django_tasks.{part}")
    exceptions: Any = sys.modules["django.tasks.exceptions"]
    for name in ("InvalidTask", "InvalidTaskBackend"):
        if not hasattr(exceptions, name):
            setattr(exceptions, name, getattr(exceptions, f"{name}Error"))
    signals: Any = sys.modules["django.tasks.signals"]
    signals.logger = logging.getLogger("django.tasks")


def _replace_backends() -> None:
    package = "django_tasks" if django.VERSION < (6, 0) else "django.tasks"
    for module, name, ours in (("dummy", "DummyBackend", Keeping), ("immediate", "ImmediateBackend", AtOnce)):
        setattr(importlib.import_module(f"{package}.backends.{module}"), name, ours)


def _skip(suite: Iterable[Any], names: Collection[str], reason: str) -> None:
    """Marks tests as skipped."""
    for test in suite:
        if isinstance(test, Iterable):
            _skip(test, names, reason)
        elif ".".join(test.id().rsplit(".", 2)[1:]) in names:
            method = test.id().rpartition(".")[2]
            setattr(test, method, skip(reason)(getattr(test, method)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
