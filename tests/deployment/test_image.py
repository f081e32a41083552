"""The image is built from what is locked, by a Dockerfile without surprises, and knows whether its part is well."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from prometheus_client import CollectorRegistry

from firmq.shared.http import healthcheck
from firmq.shared.http.metrics_server import Check, MetricsServer
from tests.support.harness import ROOT, free_port

DOCKERFILE = (ROOT / "Dockerfile").read_text()
FINAL = DOCKERFILE.rpartition("\nFROM ")[2]


def test_hadolint_finds_nothing() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([hadolint, "Dockerfile"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_runs_as_root_and_the_user_is_a_number() -> None:
    assert re.findall(r"^USER (.*)$", FINAL, re.MULTILINE) == ["10001:10001"]
    assert re.findall(r"^(?:RUN|COPY|ADD) ", FINAL.partition("\nUSER ")[2], re.MULTILINE) == []


def test_what_was_needed_to_build_stays_behind() -> None:
    assert "pip.__file__" in FINAL, "pip goes"
    assert not re.search(r"apt|pip install", FINAL)


def test_every_file_that_is_copied_is_let_in_by_dockerignore() -> None:
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        source for line in re.findall(r"^COPY (?!--)(.*) \S+$", DOCKERFILE, re.MULTILINE) for source in line.split()
    }
    assert copied == let_in


LEFT_OUT = "firmq/testing"
"""Fixtures for tests."""


def test_the_image_has_the_whole_package() -> None:
    lines = re.findall(r"^COPY (?!--)(.*) /app/(\S+)$", DOCKERFILE, re.MULTILINE)
    copied = {
        target + Path(each).name if target[-1] == "/" else target for given, target in lines for each in given.split()
    }
    listed = subprocess.run(["git", "ls-files", "firmq"], cwd=ROOT, capture_output=True, text=True, check=True)
    parts = {"/".join(each.split("/")[:2]) for each in listed.stdout.split()}
    assert parts - copied == {LEFT_OUT}


def locked() -> dict[str, str]:
    """Versions in requirements.lock by the packages' names."""
    text = (ROOT / "requirements.lock").read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))


def wanted(*extras: str) -> Iterator[Requirement]:
    """What the package needs with these extras."""
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for requirement in map(Requirement, chain(about["dependencies"], *map(about["optional-dependencies"].get, extras))):
        if requirement.name == about["name"]:
            yield from wanted(*requirement.extras)
        else:
            yield requirement


def test_the_lock_holds_what_pyproject_asks_for() -> None:
    for requirement in wanted("server", "s3"):
        version = locked().get(requirement.name.lower().replace("_", "-"))
        assert version, f"{requirement.name} is not in requirements.lock: make lock"
        assert requirement.specifier.contains(version), f"{requirement} is not {version}: make lock"


def test_the_lock_file_has_hashes_and_no_addresses() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text
    entries = re.split(r"^(?=\S)", text, flags=re.MULTILINE)[1:]
    assert all("--hash=sha256:" in entry for entry in entries)


# --- the health check ---


@pytest.fixture
def ready() -> list[bool]:
    return [True]


@pytest.fixture
def probe(ready: list[bool]) -> Iterator[MetricsServer]:
    running = MetricsServer(
        "127.0.0.1", 0, CollectorRegistry(), live=lambda: Check(True, {}), ready=lambda: Check(ready[0], {})
    )
    running.start()
    yield running
    running.stop()


def test_a_part_that_is_ready_is_healthy_whatever_ports_are_unused(probe: MetricsServer) -> None:
    assert healthcheck.main([str(free_port()), str(probe.port)]) == 0


def test_a_part_that_is_not_ready_is_not_healthy(
    probe: MetricsServer, ready: list[bool], capsys: pytest.CaptureFixture[str]
) -> None:
    ready[0] = False
    assert healthcheck.main([str(probe.port)]) == 1
    assert "503" in capsys.readouterr().out


def test_a_closed_port_is_not_healthy() -> None:
    assert healthcheck.main([str(free_port())]) == 1


def test_the_health_check_imports_next_to_nothing() -> None:
    code = "import sys, firmq.shared.http.healthcheck; print(len(sys.modules))"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 60
