"""What the tests of features add to tables of other tests."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from firmq.shared.registry import FEATURES


def rows(table: str) -> tuple[Any, ...]:
    """Returns the rows of a table which the modules `tests.features.NAME.rows` have."""
    modules = [import_module(f"tests.features.{name}.rows") for name in FEATURES]
    return tuple(row for module in modules for row in getattr(module, table, ()))
