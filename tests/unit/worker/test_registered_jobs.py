"""Each housekeeping job is known by its name wherever jobs are listed."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from firmq.shared.registry import folders_of
from firmq.shared.stores.locks import lock_names
from firmq.worker.housekeeping import jobs
from tests.support.harness import ROOT

WITHOUT_A_LOCK = {"alerts", "outage"}
"""The leader evaluates alerts; each instance watches for an outage."""


def names() -> set[str]:
    packages = [jobs, *(import_module(f"firmq.worker.features.{each.name}") for each in folders_of("worker"))]
    named = [f"{one.__name__}.{each.name}" for one in packages for each in pkgutil.iter_modules(one.__path__)]
    modules = [import_module(each) for each in named]
    found: list[Any] = [each for module in modules for each in vars(module).values() if isinstance(each, type)]
    return {each.name for each in found if hasattr(each, "run") and isinstance(getattr(each, "name", None), str)}


@pytest.mark.registration
def test_the_lock_of_each_job_is_known() -> None:
    assert names() - WITHOUT_A_LOCK == {*lock_names()} - {"metrics"}


@pytest.mark.registration
@pytest.mark.parametrize("page", ["worker/housekeeping/README.md", "docs/operate/housekeeping.md"])
def test_each_job_is_described(page: str) -> None:
    text = Path(ROOT, page).read_text()
    assert {each for each in names() if f"`{each}`" not in text} == set()
