"""Features are deleted from a copy of the checkout: their folders and names in the list. What is left is whole.

Each is deleted by itself, and all of them together, where the tests run: that no feature needs another one is in
`tests/unit/test_features.py`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this one."""
    folder = tmp_path_factory.mktemp("checkouts") / "checkout"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(os.path.lexists, (ROOT / each for each in listed.stdout.split("\0") if each)):
        (folder / name.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(name, folder / name.relative_to(ROOT), follow_symlinks=False)
    return folder


@contextmanager
def without(checkout: Path, *features: str) -> Iterator[None]:
    """Takes features away until the end: it is one copy, so that Python compiles it once."""
    registry = checkout / "shared/registry.py"
    text = changed = registry.read_text()
    for each in features:
        assert changed.count(f'"{each}",') == 1
        changed = changed.replace(f'"{each}",', "")
    folders = [folder for each in features for folder in checkout.glob(f"*/features/{each}")]
    aside = {folder: checkout.parent.joinpath(*folder.relative_to(checkout).parts) for folder in folders}
    registry.write_text(changed)
    for folder, place in aside.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(place)
    try:
        yield
    finally:
        registry.write_text(text)
        for folder, place in aside.items():
            place.rename(folder)


def run(folder: Path, *arguments: str) -> None:
    others = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        check=False, env={**others, "PYTHONPATH": str(folder)}, cwd=folder, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-10_000:]


@pytest.mark.parametrize("feature", WITH_ROWS)
def test_without_a_feature_all_lists_are_complete(checkout: Path, feature: str) -> None:
    with without(checkout, feature):
        run(checkout, "-m", "registration")


def test_several_addresses_without_their_feature_are_refused_with_its_name(checkout: Path) -> None:
    addresses = {"REDIS_PARTITIONS": "redis://a,redis://b", "REDIS_URL": "redis+cluster://a?partitions=3"}
    with without(checkout, *{"partitions"} & set(WITH_ROWS)):
        for name, address in addresses.items():
            done = subprocess.run(
                [sys.executable, "-m", "firmq.gateway"],
                check=False, env={"PATH": os.environ["PATH"], "PYTHONPATH": str(checkout), name: address},
                cwd=checkout, capture_output=True, text=True,
            )  # fmt: skip
            assert (done.returncode, "the feature `partitions`" in done.stderr) == (2, True), done.stderr
            assert "is not installed" in done.stderr


def test_without_any_feature_all_other_tests_are_collected_and_those_that_meet_the_parts_pass(checkout: Path) -> None:
    with without(checkout, *WITH_ROWS):
        run(checkout, "--collect-only")
        run(checkout, *(f"tests/{each}" for each in SOME))
