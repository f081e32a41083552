"""Each housekeeping job is known by its name wherever jobs are listed."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from firmq.shared.stores.locks import LOCK_NAMES
from firmq.worker.housekeeping import jobs
from tests.support.harness import ROOT

WITHOUT_A_LOCK = {"alerts", "outage"}
"""The leader evaluates alerts; each instance watches for an outage."""


def names() -> set[str]:
    modules = [import_module(f"{jobs.__name__}.{each.name}") for each in pkgutil.iter_modules(jobs.__path__)]
    found: list[Any] = [each for module in modules for each in vars(module).values() if isinstance(each, type)]
    return {each.name for each in found if hasattr(each, "run") and isinstance(getattr(each, "name", None), str)}


@pytest.mark.registration
def test_the_lock_of_each_job_is_known() -> None:
    assert names() - WITHOUT_A_LOCK == {*LOCK_NAMES} - {"metrics"}


@pytest.mark.registration
@pytest.mark.parametrize("page", ["worker/housekeeping/README.md", "docs/operate/housekeeping.md"])
def test_each_job_is_described(page: str) -> None:
    text = Path(ROOT, page).read_text()
    assert {each for each in names() if f"`{each}`" not in text} == set()
