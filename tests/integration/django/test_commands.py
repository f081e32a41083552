"""`manage.py` starts the worker and the housekeeper of a project."""

from __future__ import annotations

import json
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from firmq.shared.config.settings import Settings, load
from firmq.shared.domain.task import TaskState
from firmq.shared.features.rq.settings import RqSettings
from tests.integration.django.conftest import SETTINGS
from tests.support.harness import ROOT, System, wait_until

TASKS = "tests.support.django_project.tasks"
DATA: dict[str, Any] = {
    "args": [1, 2],
    "kwargs": {},
    "backend": "default",
    "queue_name": "default",
    "priority": 0,
    "run_after": None,
    "enqueued_at": "2026-01-01T00:00:00Z",
}


@pytest.mark.parametrize("command", ["firmq_worker", "worker"])
def test_a_worker_runs_the_tasks_of_the_project(system: System, command: str) -> None:
    module = ("django", command) if command.startswith("firmq") else ("firmq", command)
    modules = "" if module[0] == "django" else "firmq.django.handlers"
    worker = system.start_in(ROOT, *module, DJANGO_SETTINGS_MODULE=SETTINGS, TASK_MODULES=modules)
    wait_until(lambda: system._announced(worker), "the worker announced itself")
    done = system.ended(system.submit(f"{TASKS}.add", json.dumps(DATA)))
    assert (done.summary.state, done.result) == (TaskState.COMPLETED, 3), system.logs()
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0


def test_a_housekeeper_retries_tasks_of_the_project(system: System) -> None:
    housekeeper = system.start_in(ROOT, "django", "firmq_housekeeper", DJANGO_SETTINGS_MODULE=SETTINGS)
    system.start_worker(DJANGO_SETTINGS_MODULE=SETTINGS, TASK_MODULES="firmq.django.handlers")
    done = system.ended(system.submit(f"{TASKS}.fail_once", "{}"))
    assert done.summary.state is TaskState.COMPLETED, system.logs()
    housekeeper.send_signal(signal.SIGTERM)
    assert housekeeper.wait(60) == 0


def test_settings_of_the_project_yield_to_the_environment(django_project: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from firmq.django.part import environment

    monkeypatch.setattr(sys, "path", ["project", *sys.path])
    found = environment({"LOG_LEVEL": "DEBUG", "TASK_MODULES": "shop.more", "PYTHONPATH": "/lib"})
    assert found == {
        "LOG_LEVEL": "DEBUG",
        "WORKER_EXECUTORS": "1",
        "TASK_MODULES": "shop.more,firmq.django.handlers",
        "PYTHONPATH": f"{Path('project').absolute()}:/lib",
    }
    assert environment({})["TASK_MODULES"] == "firmq.django.handlers"


def test_settings_of_the_project_may_be_lists(django_project: str) -> None:
    from django.test import override_settings

    from firmq.django.part import environment

    with override_settings(FIRMQ={"TASK_MODULES": ["shop.reports", "shop.mail"], "WORKER_QUEUES": ("gpu", "mail")}):
        found = environment({})
    assert found["TASK_MODULES"] == "shop.reports,shop.mail,firmq.django.handlers"
    assert found["WORKER_QUEUES"] == "gpu,mail"


def test_settings_of_the_project_may_be_structures(django_project: str) -> None:
    from django.test import override_settings
    from django.utils.translation import gettext_lazy

    from firmq.django.part import environment

    nightly = {"cron": "0 3 * * *", "type": "report", "data": {"days": (1, 2), "name": gettext_lazy("Nightly")}}
    given = {
        "SCHEDULES": {"nightly": nightly},
        "TASK_LIMITS": {"type:mail": {"concurrency": 2}},
        "QUEUES": {"critical": 9, "normal": 3},
        "WORKER_QUEUES": {"gpu-*": 5},
        "QUEUE_EXECUTORS": {"reports": 2},
        "SOCKET_TIMEOUT": timedelta(seconds=2.5),
        "DEFAULT_PRIORITY": gettext_lazy("normal"),
        "PAYLOAD_STORE": None,
        "CONFIRM_WRITES": False,
        "MAX_RETRIES": 7,
        "RQ_ALLOW": frozenset({"shop.*"}),
        "API_KEYS_FILE": Path("/dev/null"),
        "METRICS_SOURCES": ["[::1]:9100", "[::1]:9101"],
    }
    given = {name: value for name, value in given.items() if name.lower() in Settings.model_fields}
    with override_settings(FIRMQ=given):
        found = load(environment({}))
    assert (found.schedules or {})["nightly"] == {**nightly, "data": {"days": [1, 2], "name": "Nightly"}}
    assert found.task_limits == {"type:mail": {"concurrency": 2}}
    assert (found.queues, found.worker_queues) == ({"critical": 9, "normal": 3}, {"gpu-*": 5})
    assert (found.queue_executors, found.default_priority) == ({"reports": 2}, "normal")
    assert found.max_retries == 7
    assert (RqSettings.of(found).rq_allow, found.metrics_sources) == (("shop.*",), ("[::1]:9100", "[::1]:9101"))
