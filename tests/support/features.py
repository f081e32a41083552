"""What the tests of features add to tables of other tests."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from firmq.shared.registry import FEATURES
from tests.support.harness import ROOT

WITH_ROWS = [name for name in FEATURES if (ROOT / "tests/features" / name / "rows.py").is_file()]
"""The features that can be deleted with their folders: the tables of other tests do not name them."""


def rows(table: str) -> tuple[Any, ...]:
    """Returns the rows of a table which the modules `tests.features.NAME.rows` have."""
    modules = [import_module(f"tests.features.{name}.rows") for name in WITH_ROWS]
    return tuple(row for module in modules for row in getattr(module, table, ()))
