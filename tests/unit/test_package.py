"""The public names of the package: what users import, and what that loads."""

from __future__ import annotations

import subprocess
import sys

import pytest

import firmq
from firmq import worker
from firmq.shared import client


def test_every_public_name_can_be_imported() -> None:
    assert [name for name in firmq.__all__ if not hasattr(firmq, name)] == []
    assert sorted(firmq.__all__) == firmq.__all__


def test_all_that_handlers_and_clients_use_is_public() -> None:
    for module in (client, worker):
        assert [name for name in module.__all__ if getattr(firmq, name) is not getattr(module, name)] == []


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Clint'"):
        vars(firmq)["__getattr__"]("Clint")


def test_a_name_is_loaded_when_it_is_used() -> None:
    loads_little = "import sys, firmq; print([name for name in sys.modules if name.startswith('firmq.')])"
    of_the_client = "import sys; from firmq import Client; print([*filter(sys.modules.get, {slow})])"
    slow = ["firmq.worker", "firmq.shared.domain.task", "pydantic", "redis", "asyncio", "concurrent.futures"]
    slow += ["http.client", "email", "ssl", "socket", "hashlib", "secrets", "uuid", "logging"]
    for code in (loads_little, of_the_client.format(slow=slow)):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "[]\n", code
