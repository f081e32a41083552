"""Options of the backend, and the classes of errors that ended tasks."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import django
import pytest

from firmq import Error, TaskFailed
from firmq.django.backend import FirmqBackend
from firmq.django.framework import InvalidTaskBackend
from firmq.django.results import _error


def backend(**options: Any) -> FirmqBackend:
    return FirmqBackend("default", {"OPTIONS": options})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"Url": "http://shop"}, r"TASKS\['default'\]: unknown OPTIONS Url: use API_KEY, .*, URL"),
        ({"TASK_OPTIONS": {"retries": 3}}, "unknown TASK_OPTIONS retries: use options of Client.submit"),
    ],
)
def test_unknown_options_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidTaskBackend, match=text):
        backend(**options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, r"TASKS\['default'\]: no client to submit with: set FIRMQ_URL"),
        ({"URL": "ftp://shop"}, "begins with none of http://"),
        ({"URL": "http://shop", "API_KEY": "a b"}, "the API key has a space"),
    ],
)
def test_a_backend_that_cannot_submit_says_why(
    options: dict[str, Any], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FIRMQ_URL", raising=False)
    with pytest.raises(InvalidTaskBackend, match=text):
        backend(**options)._client()


@pytest.mark.parametrize(
    ("own", "options"),
    [
        ({}, {"queue": "mail", "delay": 5}),
        ({"queue_name": "gpu"}, {"queue": "gpu", "delay": 5}),
        ({"priority": 10}, {"priority": "high", "delay": 5}),
        (
            {"run_after": datetime(2030, 1, 1, tzinfo=UTC)},
            {"queue": "mail", "run_at": datetime(2030, 1, 1, tzinfo=UTC)},
        ),
    ],
)
def test_options_of_a_task_replace_those_of_the_backend(own: dict[str, Any], options: dict[str, Any]) -> None:
    task: Any = SimpleNamespace(
        **{"module_path": "shop.send", "queue_name": "default", "priority": 0, "run_after": None, **own}
    )
    configured = backend(TASK_OPTIONS={"queue": "mail", "delay": 5})
    assert configured._submit_options(task) == options
    assert configured.task_options == {"queue": "mail", "delay": 5}


@pytest.mark.parametrize(
    ("error", "path", "text"),
    [
        (Error(type="ValueError", message="no", traceback="Traceback:\nValueError: no\n"), "builtins.ValueError", None),
        (Error(type="Down", message="no", traceback="Traceback:\nshop.a.Down: no\n"), "shop.a.Down", None),
        (Error(type="Down", message="Down", traceback="Traceback:\nshop.a.Down\n"), "shop.a.Down", None),
        (Error(type="Down", message="a\nb", traceback="x.Down: a\ny.Down: a\nb\nnote\n"), "y.Down", None),
        (
            Error(type="LeaseLost", message="its worker is gone"),
            "firmq.TaskFailed",
            "LeaseLost: its worker is gone",
        ),
        (Error(type="", message="not needed"), "firmq.TaskFailed", "not needed"),
    ],
)
def test_the_class_of_an_error_comes_from_its_traceback(error: Error, path: str, text: str | None) -> None:
    found = _error(error)
    assert (found.exception_class_path, found.traceback) == (path, text or error.traceback)


def test_the_class_of_a_task_that_no_exception_ended_can_be_imported() -> None:
    assert _error(Error(type="LeaseLost", message="")).exception_class is TaskFailed


@pytest.mark.skipif(django.VERSION >= (6, 0), reason="Django 6 has tasks of its own")
def test_django_without_tasks_says_what_to_install() -> None:
    code = "import sys; sys.modules['django_tasks'] = None; import firmq.django.backend"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "has no tasks of its own: pip install django-tasks, or use Django 6" in done.stderr


def test_importing_the_package_needs_no_settings() -> None:
    code = "import sys, firmq.django; print('django' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
