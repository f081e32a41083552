"""The core imports no feature, and features do not import each other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from firmq.shared.registry import FEATURES, added, features_of
from tests.support.harness import ROOT

PARTS = ("shared", "gateway", "worker", "dashboard")


def imported(file: Path) -> Iterator[str]:
    """Yields the modules that a file imports, or names in a text, by their whole names."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("firmq."):
            yield node.value


def feature_of(name: str) -> str | None:
    """Returns the feature that has a module."""
    parts = name.split(".")
    return parts[3] if parts[:1] == ["firmq"] and parts[2:3] == ["features"] and len(parts) > 3 else None


@pytest.mark.parametrize("part", PARTS)
def test_only_a_feature_imports_itself(part: str) -> None:
    found = []
    for file in (ROOT / part).rglob("*.py"):
        inside = file.relative_to(ROOT / part).parts
        own = inside[1] if inside[0] == "features" and len(inside) > 2 else None
        found += [f"{file}: {each}" for each in imported(file) if feature_of(each) not in (None, own)]
    assert found == []


def test_no_two_features_add_the_same_name() -> None:
    names = [name for each in features_of("shared") for name in (*each.public, *each.worker_options, *each.jobs)]
    names += [name for more in added("commands") for name in more]
    assert len(names) == len(set(names))


def test_each_folder_is_in_the_list() -> None:
    folders = {path.name for part in PARTS for path in (ROOT / part / "features").iterdir() if path.is_dir()}
    assert folders - {"__pycache__"} == set(FEATURES)
