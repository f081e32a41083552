"""Leaves out tests of a feature together with another one that is not there."""

from __future__ import annotations

from pathlib import Path

from firmq.shared.registry import FEATURES

_TOGETHER = "test_with_"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Ignores `test_with_NAME.py` where there is no feature NAME."""
    name = collection_path.stem.removeprefix(_TOGETHER)
    return True if collection_path.stem.startswith(_TOGETHER) and name not in FEATURES else None
