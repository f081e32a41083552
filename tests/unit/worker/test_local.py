"""Local mode without the packages that it needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from taskqueue.shared.errors import NotInstalled, needs


def test_a_local_client_without_its_packages_says_what_to_install() -> None:
    code = "import sys; sys.modules['jsonschema_rs'] = None; from taskqueue import LocalClient"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        "taskqueue.shared.errors.NotInstalled: LocalClient needs jsonschema_rs, which is not installed: "
        "pip install 'taskqueue[local]'"
    )


def test_a_missing_package_is_an_import_error() -> None:
    with pytest.raises(ImportError, match="it needs no_such_package"), needs("it", extra="local"):
        import no_such_package.part  # type: ignore[import-not-found]  # noqa: F401
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), needs("it", extra="local"):
        import taskqueue.no_such_module  # type: ignore[import-not-found]  # noqa: F401
    assert issubclass(NotInstalled, ImportError)
