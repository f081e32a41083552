"""A feature is deleted from a copy of the checkout: its folders and its name in the list. What is left is whole."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.features import WITH_ROWS
from tests.support.harness import ROOT

SOME = (
    *("unit/test_features.py", "unit/test_package.py", "unit/shared/redis", "unit/shared/config"),
    *("integration/stores/test_scripts.py", "integration/gateway/test_keys.py"),
    *("integration/housekeeping/test_routes.py", "integration/dashboard/test_pages.py"),
)
"""Tests that meet each part and the tables to which features add rows."""

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module", params=WITH_ROWS)
def without(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout without a feature."""
    folder = tmp_path_factory.mktemp("without")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(os.path.lexists, (ROOT / each for each in listed.stdout.split("\0") if each)):
        place = name.relative_to(ROOT)
        if place.parts[1:3] != ("features", request.param):
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(name, folder / place, follow_symlinks=False)
    registry = folder / "shared/registry.py"
    assert registry.read_text().count(f'"{request.param}",') == 1
    registry.write_text(registry.read_text().replace(f'"{request.param}",', ""))
    return folder


def run(folder: Path, *arguments: str) -> None:
    others = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        check=False, env={**others, "PYTHONPATH": str(folder)}, cwd=folder, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-10_000:]


def test_all_tests_are_collected(without: Path) -> None:
    run(without, "--collect-only")


def test_all_lists_are_complete(without: Path) -> None:
    run(without, "-m", "registration")


def test_several_addresses_without_their_feature_are_refused_with_its_name(without: Path) -> None:
    if "partitions" in (without / "shared/registry.py").read_text():
        pytest.skip("the feature is there")
    for name, address in {
        "REDIS_PARTITIONS": "redis://a,redis://b",
        "REDIS_URL": "redis+cluster://a?partitions=3",
    }.items():
        done = subprocess.run(
            [sys.executable, "-m", "firmq.gateway"],
            check=False, env={"PATH": os.environ["PATH"], "PYTHONPATH": str(without), name: address}, cwd=without,
            capture_output=True, text=True,
        )  # fmt: skip
        assert (done.returncode, "the feature `partitions`" in done.stderr) == (2, True), done.stderr
        assert "is not installed" in done.stderr


def test_the_other_tests_pass(without: Path) -> None:
    run(without, *(f"tests/{each}" for each in SOME))
