"""Django's own tests of task backends pass on ours. They come from Django's source distribution."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from firmq.shared.stores.task_types import TaskType, TaskTypes
from tests.integration.client.conftest import start_gateway
from tests.support.archives import unpack
from tests.support.harness import ROOT, System, free_port

DJANGO = "Django==6.0.10"
"""Django 6 is the first with tests of tasks. On Django 5.2 they run on django-tasks, under its name in Django 6."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of Django's tests."""
    folder = tmp_path_factory.mktemp("django")
    if not (given := os.environ.get("TEST_DJANGO_SDIST")):
        kept = ROOT / ".bench" / "django" / DJANGO  # for the other version of Python, and the next time
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check")
        what = ("--no-deps", "--no-binary", ":all:", "--ignore-requires-python", "--dest", kept, DJANGO)
        if not list(kept.glob("*.tar.gz")):
            subprocess.run([*pip, *what], check=True, timeout=290)
        [given] = map(str, kept.glob("*.tar.gz"))
    with tarfile.open(given) as archive:
        wanted = [each for each in archive.getmembers() if "/tests/tasks/" in each.name]
        unpack(archive, folder, wanted)
    [tests] = folder.glob("*/tests")
    return tests


def test_djangos_own_tests_pass(source: Path, system: System) -> None:
    # A gateway takes tasks of types that a worker registered; without a worker they wait.
    functions = re.findall(r"^(?:async )?def (\w+)", (source / "tasks" / "tasks.py").read_text(), re.MULTILINE)
    TaskTypes(system.redis).publish([TaskType(name=f"tasks.tasks.{each}", schema={}) for each in functions])
    port = free_port()
    start_gateway(system, port)
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.django_suite", source, "tasks"],
        cwd=ROOT,
        env={**os.environ, "FIRMQ_URL": f"http://127.0.0.1:{port}"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    passed = [line for line in done.stderr.splitlines() if line.endswith(" ... ok")]
    assert len(passed) >= 68, done.stderr
