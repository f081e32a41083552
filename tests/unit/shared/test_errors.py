"""Errors that say what to install."""

from __future__ import annotations

import pytest

from firmq.shared.errors import NotInstalled, needs


def test_a_missing_package_is_an_import_error() -> None:
    with pytest.raises(ImportError, match="it needs no_such_package"), needs("it", extra="local"):
        import no_such_package.part  # type: ignore[import-not-found]  # noqa: F401
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), needs("it", extra="local"):
        import firmq.no_such_module  # type: ignore[import-not-found]  # noqa: F401
    assert issubclass(NotInstalled, ImportError)
